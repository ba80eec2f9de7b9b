"""What a tokenizer is made of, whatever file it was read from."""

from dataclasses import dataclass

import tokenizers


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerParts:
    """A backend with what the `tokenizers` library does not say.

    Attributes:
        name: of the model, for sentences to the user.
        backend: splits text and looks up ids; without post-processor, truncation or padding.
        bos_token_id: the token that begins a prompt; None if there is none.
        eos_token_id: the token that the model's file calls its end token; None if there is none.
        adds_bos: whether a prompt is to begin with the BOS token.
        chat_template: Jinja source; None when the model brings none.
    """

    name: str
    backend: tokenizers.Tokenizer
    bos_token_id: int | None
    eos_token_id: int | None
    adds_bos: bool
    chat_template: str | None
