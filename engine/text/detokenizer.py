"""Token ids to text as they come, for one request. Knows no stop strings and no requests."""

import codecs

from engine.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns a stream of tokens into a stream of whole characters.

    The pieces of `push` and the last one of `flush` together are `tokenizer.decode` of all ids. Bytes of a character
    that is not complete are held back; bytes that can never become one are shown as U+FFFD at once.

    Args:
        tokenizer: of the thread that pushes.
        skip_special: leave control tokens out of the text.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._has_begun = False

    def push(self, token_id: int) -> str:
        """Text that this token completes; often "" in the middle of a character."""
        return self._show(self._decoder.decode(self._tokenizer.token_bytes(token_id, skip_special=self._skip_special)))

    def flush(self) -> str:
        """What is left at the end: one U+FFFD for half a character, or nothing."""
        return self._show(self._decoder.decode(b"", final=True))

    def _show(self, text: str) -> str:
        if self._has_begun or not text:
            return text
        self._has_begun = True
        return text[self._tokenizer.leading_spaces_to_drop(text) :]
