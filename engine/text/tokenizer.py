"""Text to token ids and back, over the `tokenizers` library. Knows no templates, no requests, no torch.

A Tokenizer belongs to one thread: the library's object refuses a change while another thread uses it ("Already
borrowed"), and encoding switches how control tokens are read. Two threads load two Tokenizers.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from engine.errors import ModelError
from engine.gguf_file import read_header
from engine.text.folder_tokenizer import parts_from_folder
from engine.text.gguf_tokenizer import parts_from_header
from engine.text.parts import TokenizerParts
from engine.text.token_bytes import token_spelling

_BEFORE = "\n"


def load_tokenizer(path: Path) -> "Tokenizer":
    """Read the tokenizer of a GGUF file or of a model folder.

    Raises:
        ModelError: there is none, or it is of a kind that is not known.
    """
    if not path.exists():
        raise ModelError(f"There is no file or folder {path}. Check the path, or choose another model.")
    return Tokenizer(parts_from_folder(path) if path.is_dir() else parts_from_header(read_header(path)))


class Tokenizer:
    """Encodes and decodes for one thread.

    A *control token* is an added token that is marked special: "<|im_end|>", "</s>". Typed text never becomes one:
    `encode` takes its characters as plain text; only `encode_with_control` reads it as the token.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        self._parts = parts
        self._backend = parts.backend
        self._spelling = token_spelling(parts.backend, parts.name)
        added = parts.backend.get_added_tokens_decoder()
        self._control_texts = {number: token.content for number, token in added.items() if token.special}
        self._bytes: dict[int, bytes] = {}

    @property
    def name(self) -> str:
        """The model's name, for sentences to the user."""
        return self._parts.name

    @property
    def digest(self) -> str:
        """The same for the same tokenizer: there every id stands for the same token."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()[:16]

    @property
    def vocab_size(self) -> int:
        """Number of tokens, the added ones included. A model's logits may have more columns."""
        return self._backend.get_vocab_size()

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a prompt."""
        return self._parts.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """The end token that the tokenizer's file names; the architecture lists all of them."""
        return self._parts.eos_token_id

    @property
    def adds_bos(self) -> bool:
        """Whether a prompt is to begin with the BOS token."""
        return self._parts.adds_bos and self._parts.bos_token_id is not None

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that came with the model."""
        return self._parts.chat_template

    @property
    def control_tokens(self) -> frozenset[str]:
        """The texts of all control tokens."""
        return frozenset(self._control_texts.values())

    def is_control(self, token_id: int) -> bool:
        """Whether this id is a control token."""
        return token_id in self._control_texts

    def encode(self, text: str) -> list[int]:
        """Ids of plain text, without BOS."""
        return self._encode(text, plain=True)

    def encode_with_control(self, text: str) -> list[int]:
        """Ids of template text, in which control tokens are read as such; without BOS."""
        return self._encode(text, plain=False)

    def encode_continuation(self, text: str) -> list[int]:
        """Template text that other tokens come before: without the space that SentencePiece puts before a beginning."""
        before = self.encode_with_control(_BEFORE) if self._spelling.leading_spaces else []
        ids = self.encode_with_control(_BEFORE + text) if before else []
        # Where the character before has become one token with the text, there is no telling them apart.
        return ids[len(before) :] if before and ids[: len(before)] == before else self.encode_with_control(text)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of plain text as a whole prompt: with BOS where the model wants one."""
        return [*self.bos_prefix(), *self.encode(text)]

    def bos_prefix(self) -> list[int]:
        """What a prompt has to begin with: the BOS token or nothing."""
        bos = self._parts.bos_token_id
        return [bos] if self._parts.adds_bos and bos is not None else []

    def token_count(self, text: str) -> int:
        """How many tokens plain text has."""
        return len(self.encode(text))

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of these ids; bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary have no text."""
        data = b"".join([self.token_bytes(number, skip_special=skip_special) for number in ids])
        text = data.decode("utf-8", "replace")
        return text[self.leading_spaces_to_drop(text) :]

    def token_text(self, token_id: int) -> str:
        """One token for people: its text, a control token's name, or "" outside the vocabulary."""
        return self.token_bytes(token_id, skip_special=False).decode("utf-8", "replace")

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        """What one token adds to a text; a control token adds nothing when it is skipped."""
        if skip_special and token_id in self._control_texts:
            return b""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._spell(token_id)
        return found

    def leading_spaces_to_drop(self, text: str) -> int:
        """SentencePiece writes a space before the first word: how many characters to cut off a text's beginning."""
        limit = self._spelling.leading_spaces
        return min(limit, len(text) - len(text.lstrip(" "))) if limit else 0

    def _spell(self, token_id: int) -> bytes:
        # The library takes unsigned 32-bit ids.
        token = self._backend.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        return self._spelling.to_bytes(token) if token is not None else b""

    def _encode(self, text: str, *, plain: bool) -> list[int]:
        self._backend.encode_special_tokens = plain
        return self._backend.encode(_without_surrogates(text), add_special_tokens=False).ids


def _without_surrogates(text: str) -> str:
    """Halves of UTF-16 pairs, as clipboards may bring them: joined where they meet, else U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
