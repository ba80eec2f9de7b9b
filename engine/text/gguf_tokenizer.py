"""A tokenizer from the fields of a GGUF header.

transformers can do this too, but takes seconds for what takes a fraction of one here. Two kinds of vocabulary are
known: byte-level BPE with its merges ("gpt2"), and SentencePiece BPE with scores and byte fallback ("llama").
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from engine.errors import ModelError
from engine.gguf_file import GGUFHeader
from engine.text.parts import TokenizerParts
from engine.text.pre_tokenizers import pre_tokenization

# Token types of GGUF (enum llama_token_type).
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_SPACE = "▁"
_LISTS = {"gpt2": ("tokens", "merges"), "llama": ("tokens", "scores")}


def parts_from_header(header: GGUFHeader) -> TokenizerParts:
    """Build the tokenizer that a GGUF file describes.

    Raises:
        ModelError: a field is missing or of a kind that is not known.
    """
    check_fields(header)
    metadata = header.metadata
    if _field(header, "model") == "gpt2":
        backend, adds_bos = _byte_level(header)
    else:
        backend, adds_bos = _sentence_piece(header), True
    _add_special_tokens(backend, metadata)
    return TokenizerParts(
        name=header.path.stem,
        backend=backend,
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=metadata.get("tokenizer.ggml.eos_token_id"),
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", adds_bos)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def check_fields(header: GGUFHeader) -> None:
    """Whether a tokenizer of a known kind is described; what stands in its lists does not matter here.

    Raises:
        ModelError: a field is missing or of a kind that is not known.
    """
    kind = _field(header, "model")
    if kind not in _LISTS:
        raise ModelError(
            f"{header.path} has a tokenizer of the kind {kind!r}; byte-level BPE ('gpt2') and SentencePiece ('llama') "
            "can be read. Choose another model."
        )
    for name in _LISTS[kind]:
        _field(header, name)
    if kind == "gpt2":
        pre_tokenization(header.metadata.get("tokenizer.ggml.pre", "default"))


def _field(header: GGUFHeader, name: str) -> Any:
    value = header.metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        raise ModelError(
            f"{header.path} has no field tokenizer.ggml.{name}, so text cannot be turned into tokens. "
            "Convert or download the model again."
        )
    return value


def _vocabulary(header: GGUFHeader) -> dict[str, int]:
    return {token: number for number, token in enumerate(_field(header, "tokens"))}


def _byte_level(header: GGUFHeader) -> tuple[tokenizers.Tokenizer, bool]:
    rules = pre_tokenization(header.metadata.get("tokenizer.ggml.pre", "default"))
    merges = [_pair(merge) for merge in _field(header, "merges")]
    model = _bpe(header, _vocabulary(header), merges, ignore_merges=rules.ignore_merges)
    backend = tokenizers.Tokenizer(model)
    if rules.normalizer is not None:
        backend.normalizer = rules.normalizer
    backend.pre_tokenizer = rules.pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    return backend, rules.adds_bos


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _sentence_piece(header: GGUFHeader) -> tokenizers.Tokenizer:
    vocabulary = _vocabulary(header)
    merges = list(merges_by_score(_field(header, "tokens"), _field(header, "scores"), vocabulary))
    unknown_id = header.metadata.get("tokenizer.ggml.unknown_token_id", 0)
    unknown = _field(header, "tokens")[unknown_id]
    backend = tokenizers.Tokenizer(
        _bpe(header, vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    spaces = normalizers.Replace(" ", _SPACE)
    # SentencePiece puts a space before the text; ggml does so after each control token too.
    has_prefix = header.metadata.get("tokenizer.ggml.add_space_prefix", True)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if has_prefix else spaces
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if has_prefix else steps)
    return backend


def merges_by_score(
    tokens: Sequence[str], scores: Sequence[float], vocabulary: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """The merges that a scored vocabulary implies, best first.

    SentencePiece joins whichever neighbours make the best-scored token, so every way to cut a token into two tokens is
    a merge of that token's rank.
    """
    for number in sorted(range(len(tokens)), key=lambda number: (-scores[number], number)):
        token = tokens[number]
        for cut in range(1, len(token)):
            if token[:cut] in vocabulary and token[cut:] in vocabulary:
                yield token[:cut], token[cut:]


def _bpe(
    header: GGUFHeader,
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    **options: Any,
) -> models.BPE:
    try:
        return models.BPE(vocabulary, merges, **options)
    except Exception as error:
        raise ModelError(
            f"The tokenizer in {header.path} contradicts itself ({error}). Convert or download the model again."
        ) from error


def _add_special_tokens(backend: tokenizers.Tokenizer, metadata: Mapping[str, Any]) -> None:
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    control, plain = [], []
    for token, kind in zip(tokens, kinds, strict=False):
        if kind in (_CONTROL, _UNKNOWN):
            control.append(AddedToken(token, special=True, normalized=False))
        elif kind == _USER_DEFINED:
            plain.append(AddedToken(token, special=False, normalized=False))
    backend.add_special_tokens(control)
    backend.add_tokens(plain)
