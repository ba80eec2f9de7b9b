"""What the open window costs: `python -m tests.bench.window [--phases 12] [--part NAME] [--json FILE]`.

It starts the real program with the starter model and one engine thread under Xvfb (or the display that is there) and
measures, each part in a process of its own:

    streams  CPU of the GUI's thread with 16 conversations streaming and all graphs live; repaints of each graph
    cost     the engine's steps a second with the window live and with nobody looking, in turns
    stalls   how late the event loop is, from the start over torch's import to everything that a user does
    idle     CPU of the whole process with nothing to do and 300 more processes on the machine
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from app.paths import user_paths
from engine.catalog.starter import starter_path
from tests.bench.display import some_display

PARTS = ("streams", "cost", "stalls", "idle")


def main() -> int:
    """Run the parts and print a table."""
    options = _options()
    if options.inside:
        return _measure(options)
    results: dict[str, Any] = {}
    with some_display() as display:
        for part in options.part or PARTS:
            results[part] = _run(part, options, display)
            print(_table(part, results[part]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phases", type=int, default=12, help="how often the engine's cost is measured")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; may be given several times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--model", type=Path, help="a model's file instead of the starter")
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(part: str, options: argparse.Namespace, display: str) -> dict[str, Any]:
    """One part in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.bench.window", "--part", part, "--phases", str(options.phases)]
        command += ["--inside", folder, *(["--model", str(options.model)] if options.model else [])]
        environment = {name: value for name, value in os.environ.items() if name != "QT_QPA_PLATFORM"}
        subprocess.run(command, check=True, env={**environment, "DISPLAY": display})
        result: dict[str, Any] = json.loads((Path(folder) / "figures.json").read_text(encoding="utf-8"))
        return result


def _measure(options: argparse.Namespace) -> int:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the program does
    from tests.bench import parts

    model = options.model or starter_path(user_paths().cache)
    if model is None:
        sys.exit("There is no starter model here: `kvscope models get starter` fetches it.")
    (part,) = options.part
    measures = {"streams": parts.measure_streams, "stalls": parts.measure_stalls, "idle": parts.measure_idle}
    data = options.inside / "data"
    data.mkdir()
    found = parts.measure_cost(data, model, options.phases) if part == "cost" else measures[part](data, model)
    (options.inside / "figures.json").write_text(json.dumps(found), encoding="utf-8")
    return 0


def _table(part: str, found: dict[str, Any]) -> str:
    lines = [f"{part}:"]
    if part == "stalls":
        lines.append(f"  typing during the import of torch kept: {'yes' if found['typing_kept'] else 'NO'}")
        lines.append(f"  {'phase':<28}{'seconds':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
        lines += [
            f"  {name:<28}{late['span_s']:>9.1f}{late['p50_ms']:>9.1f}{late['p99_ms']:>9.1f}{late['longest_ms']:>9.1f}"
            for name, late in found["phases"].items()
        ]
        return "\n".join(lines)
    for name, value in found.items():
        if isinstance(value, dict):
            lines.append(f"  {name}:")
            lines += [f"    {key:<62}{inner}" for key, inner in value.items()]
        else:
            lines.append(f"  {name:<64}{value}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
