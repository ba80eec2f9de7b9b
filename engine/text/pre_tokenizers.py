"""How each family of byte-level vocabularies cuts text before merging, by the name a GGUF file gives it.

The names are those of `tokenizer.ggml.pre`; each pattern is a fact of the vocabulary that was trained with it, as its
tokenizer.json states it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenizers import Regex, normalizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from engine.errors import ModelError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """How one family treats text.

    Attributes:
        pre_tokenizer: cuts the text.
        normalizer: goes before it.
        ignore_merges: a piece that is a token as a whole is taken without merging.
        adds_bos: whether a prompt begins with BOS when the file does not say.
    """

    pre_tokenizer: PreTokenizer
    normalizer: Normalizer | None = None
    ignore_merges: bool = False
    adds_bos: bool = False


def pre_tokenization(name: str) -> PreTokenization:
    """Look up a `tokenizer.ggml.pre`.

    Raises:
        ModelError: the name is not known; guessing would give wrong tokens silently.
    """
    for names, make in _KINDS.items():
        if name in names:
            return make()
    raise ModelError(
        f"The model's tokenizer cuts text by the rule {name!r}, which is not known here. "
        "Choose another model, or the same one as a safetensors folder with its tokenizer.json."
    )


def _gpt2() -> PreTokenization:
    return PreTokenization(ByteLevel(add_prefix_space=False))


def _single_digits() -> PreTokenization:
    return PreTokenization(Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]))


def _llama3() -> PreTokenization:
    return PreTokenization(_split(_LLAMA3), ignore_merges=True, adds_bos=True)


def _qwen2() -> PreTokenization:
    return PreTokenization(_split(_QWEN2), normalizer=normalizers.NFC())


def _tekken() -> PreTokenization:
    return PreTokenization(_split(_TEKKEN), ignore_merges=True)


def _default() -> PreTokenization:
    return PreTokenization(_split(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))


def _split(*patterns: str) -> PreTokenizer:
    splits: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in patterns]
    return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


_KINDS: Mapping[tuple[str, ...], Callable[[], PreTokenization]] = {
    ("gpt-2", "gpt2", "phi-2", "olmo", "trillion"): _gpt2,
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"): _single_digits,
    ("llama-bpe", "llama3", "llama-v3", "falcon3", "smaug-bpe"): _llama3,
    ("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"): _qwen2,
    ("tekken",): _tekken,
    ("default",): _default,
}
