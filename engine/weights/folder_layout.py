"""Whether a folder holds a model that can be computed: its configuration and the headers of its files. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.weights.config_json import architecture_from_folder, read_json
from engine.weights.expected import expected_shapes, unexpected_shape

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

_DTYPE_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
# What methods of quantisation store in a weight's place, or beside it: GPTQ and AWQ, bitsandbytes, and others.
_QUANTIZED_ENDINGS = (".qweight", ".weight.quant_map", ".weight_scale", ".weight_packed", ".SCB")


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """What stands in the headers.

    Attributes:
        architecture: from config.json; whether heads are tied is what that says.
        file_of: for each stored tensor the file it lies in.
        aliases: tensors of the model that are stored under another one's name.
        dtype_name: of the embedding, for people.
    """

    architecture: ModelArchitecture
    file_of: Mapping[str, Path]
    aliases: Mapping[str, str]
    dtype_name: str

    @property
    def has_both_tables(self) -> bool:
        """Whether embedding and head are stored, whatever the configuration says."""
        return EMBEDDING in self.file_of and HEAD in self.file_of


def check_folder(folder: Path) -> FolderLayout:
    """Read the headers, and no weights.

    Raises:
        ModelError: the folder cannot be run.
    """
    architecture = architecture_from_folder(folder)
    stored = {name: tensor for path in file_paths(folder) for name, tensor in _stored_tensors(path)}
    _check_not_quantized(folder, stored)
    aliases = _aliases(folder, architecture, stored)
    dtype_names = _check_tensors(folder, architecture, stored, aliases)
    return FolderLayout(architecture, {name: tensor.path for name, tensor in stored.items()}, aliases, dtype_names[0])


@dataclass(frozen=True, slots=True)
class _Stored:
    path: Path
    shape: tuple[int, ...]
    dtype: str


def _stored_tensors(path: Path) -> Iterator[tuple[str, _Stored]]:
    file = open_file(path, framework="numpy")
    for name in file.keys():  # noqa: SIM118 - no mapping
        part = file.get_slice(name)
        yield name, _Stored(path, tuple(part.get_shape()), part.get_dtype())


def open_file(path: Path, *, framework: str) -> Any:
    """One safetensors file, mapped.

    Raises:
        ModelError: it is missing, damaged or incomplete.
    """
    if not path.is_file():
        raise ModelError(
            f"The folder {path.parent} lacks the file {path.name} that its index names. Download it again."
        )
    try:
        return safe_open(path, framework=framework, device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged or incomplete ({error}). Download it again.") from error


def file_paths(folder: Path) -> list[Path]:
    """One whole file, the shards that the index names, or whatever *.safetensors there is.

    Raises:
        ModelError: there are none.
    """
    index = folder / INDEX_NAME
    if (folder / SINGLE_NAME).is_file():
        return [folder / SINGLE_NAME]
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
            raise ModelError(f"{index} names no files. Download the model again.")
        return [folder / name for name in sorted(set(names.values()))]
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(
            f"The folder {folder} has no *.safetensors files{_other_files(folder)}. "
            "Choose a folder with config.json and *.safetensors, or a GGUF file."
        )
    return paths


def _other_files(folder: Path) -> str:
    for pattern in ("*.gguf", "*.bin", "*.pth", "*.pt"):
        found = min(folder.glob(pattern), default=None)
        if found is not None:
            return f", only {found.name}"
    return ""


def _check_not_quantized(folder: Path, stored: Mapping[str, _Stored]) -> None:
    found = next((name for name in stored if name.endswith(_QUANTIZED_ENDINGS)), None)
    if found is not None:
        raise ModelError(
            f"The weights in {folder} are quantised ({found}) in a way that cannot be read. "
            "Choose the model in bfloat16 or float16, or as GGUF."
        )


def _aliases(folder: Path, architecture: ModelArchitecture, stored: Mapping[str, _Stored]) -> dict[str, str]:
    """A tied model whose file has only the head takes the head as its embedding, as in transformers."""
    if architecture.tie_word_embeddings and EMBEDDING not in stored and HEAD in stored:
        return {EMBEDDING: HEAD}
    if not architecture.tie_word_embeddings and EMBEDDING in stored and HEAD not in stored:
        # transformers reports it and draws a random one.
        raise ModelError(
            f"The config.json of {folder} promises an output head of its own, and the files have no {HEAD}. "
            'Download the model again, or write "tie_word_embeddings": true if it shares its embedding.'
        )
    return {}


def _check_tensors(
    folder: Path, architecture: ModelArchitecture, stored: Mapping[str, _Stored], aliases: Mapping[str, str]
) -> list[str]:
    """All that the model needs is there, in the right shape and a known dtype; returns the dtypes' names."""
    is_untied = not architecture.tie_word_embeddings or (HEAD in stored and EMBEDDING in stored)
    names = []
    for name, shape in expected_shapes(replace(architecture, tie_word_embeddings=not is_untied)):
        tensor = stored.get(aliases.get(name, name))
        if tensor is None:
            raise missing_tensor(folder, name)
        if tensor.shape != shape:
            raise unexpected_shape(folder, name, tensor.shape, shape)
        if tensor.dtype not in _DTYPE_NAMES:
            raise ModelError(
                f"The weights in {folder} are stored as {tensor.dtype}, which cannot be read. "
                "Choose the model in bfloat16, float16 or float32, or as GGUF."
            )
        names.append(_DTYPE_NAMES[tensor.dtype])
    return names


def missing_tensor(folder: Path, name: str) -> ModelError:
    """The error for a tensor that the files lack."""
    return ModelError(f"The files in {folder} have no tensor {name}. Download the model again, or choose another.")
