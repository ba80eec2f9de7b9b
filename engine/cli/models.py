"""`kvscope models`: what is on this machine, and fetching more."""

from engine.catalog.download import fetch_model
from engine.catalog.local import list_models as find_models
from engine.cli.terminal import StatusLine, fetch_text, model_folders
from engine.trace.export import print_json


def list_models(*, as_json: bool) -> int:
    """Print a line or an object for each model."""
    found = find_models(model_folders())
    if as_json:
        print_json(
            [
                {
                    "name": model.name,
                    "path": str(model.path),
                    "source": model.source.value,
                    "size_bytes": model.size_bytes,
                }
                for model in found
            ]
        )
        return 0
    if not found:
        print("There is no model on this machine yet. Fetch the starter with `kvscope models get starter`.")
    for model in found:
        print(f"{model.name:<40}{model.size_bytes / 1e6:>9,.0f} MB  {model.source.value}")
    return 0


def get_model(name: str) -> int:
    """Fetch it, showing progress, and say where it is."""
    with StatusLine() as status:
        path = fetch_model(name, model_folders(), lambda progress: status.show(fetch_text(progress)), lambda: False)
    print(f"{name} is at {path}.")
    return 0
