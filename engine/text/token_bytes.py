"""The bytes that each token stands for: the one mechanism behind whole and incremental decoding.

Text is the concatenation of these bytes read as UTF-8, so a stream needs no look back and costs the same for every
token. The rules come from the decoder that a tokenizer names (ByteLevel, or SentencePiece's replacement of spaces with
byte fallback).
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tokenizers

from engine.errors import ModelError

_FALLBACK_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, by character (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


@dataclass(frozen=True, slots=True)
class TokenSpelling:
    """How a vocabulary writes bytes.

    Attributes:
        to_bytes: from a token's text in the vocabulary to its bytes.
        leading_spaces: spaces to drop at the very beginning of a text.
    """

    to_bytes: Callable[[str], bytes]
    leading_spaces: int = 0


def token_spelling(backend: tokenizers.Tokenizer, name: str) -> TokenSpelling:
    """Read the rules off a tokenizer's decoder.

    Raises:
        ModelError: a decoder that is not known.
    """
    if backend.decoder is None:
        return TokenSpelling(lambda token: token.encode("utf-8"))
    decoder = json.loads(backend.decoder.__getstate__())
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = {step["type"] for step in steps}
    if kinds == {"ByteLevel"}:
        return TokenSpelling(_byte_level())
    if kinds == {"Metaspace"}:
        return TokenSpelling(_replaced(decoder["replacement"], " "), int(decoder["prepend_scheme"] != "never"))
    if kinds <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        return _sentence_piece(steps)
    raise ModelError(
        f"The tokenizer of {name} writes its tokens in a way that is not known here ({', '.join(sorted(kinds))}). "
        "Choose another model."
    )


def _byte_level() -> Callable[[str], bytes]:
    alphabet = byte_alphabet()

    def to_bytes(token: str) -> bytes:
        try:
            return bytes([alphabet[character] for character in token])
        except KeyError:  # an added token, which stands as plain text
            return token.encode("utf-8")

    return to_bytes


def _replaced(old: str, new: str) -> Callable[[str], bytes]:
    return lambda token: token.replace(old, new).encode("utf-8")


def _sentence_piece(steps: list[dict[str, Any]]) -> TokenSpelling:
    replaced = {step["pattern"]["String"]: step["content"] for step in steps if step["type"] == "Replace"}
    stripped = sum(step["start"] for step in steps if step["type"] == "Strip" and step["content"] == " ")
    has_fallback = any(step["type"] == "ByteFallback" for step in steps)

    def to_bytes(token: str) -> bytes:
        match = _FALLBACK_BYTE.fullmatch(token) if has_fallback else None
        if match is not None:
            return bytes([int(match[1], 16)])
        for old, new in replaced.items():
            token = token.replace(old, new)
        return token.encode("utf-8")

    return TokenSpelling(to_bytes, stripped)
