"""A conversation to the token ids that the model expects. Knows roles and texts, no engine.

What a user types is text, never a control token: in each message every control token's name is wrapped in two marker
characters before the template sees it. The rendered text is cut at the markers; what stood between them is encoded as
plain text, the rest with control tokens. A conversation without such names is encoded in one piece, exactly as
transformers' `apply_chat_template` would.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from jinja2 import TemplateError

from engine.errors import ChatTemplateError
from engine.requests import Message
from engine.text.template_sandbox import TemplateSandbox
from engine.text.tokenizer import Tokenizer

PLAIN_FORMAT = (
    "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
ROLES = frozenset({"system", "user", "assistant"})
_FREE_CHARACTERS = 1_000_000
_PRIVATE_USE = range(0xE000, 0xF900)


class ChatTemplate:
    """The template of one model; belongs to the thread of its tokenizer.

    A model without a template gets a plain "role: text" format.
    """

    def __init__(self, tokenizer: Tokenizer, make_sandbox: Callable[[str], TemplateSandbox] = TemplateSandbox) -> None:
        self._tokenizer = tokenizer
        self._source = tokenizer.chat_template or PLAIN_FORMAT
        self._make_sandbox = make_sandbox
        self._sandbox: TemplateSandbox | None = None
        self._control = _ControlNames(tokenizer.control_tokens)

    @property
    def is_fallback(self) -> bool:
        """Whether the model brought no template of its own."""
        return not self._tokenizer.chat_template

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the whole prompt, up to where the assistant begins, with exactly one BOS where the model wants one.

        Raises:
            ChatTemplateError: the template refuses these messages, fails, or does not behave.
        """
        self._check_roles(messages)
        marks = _Marks.unused_in([self._source, *(message.content for message in messages)])
        ids = self._encode(messages, marks, lambda text: self._control.wrap(text, marks))
        if any(self._control.may_join_at_edge(message.content) for message in messages):
            # A name could be completed by the template's own text around a message: if cutting the messages off from
            # the template changes which control tokens there are, the cut is needed.
            cut = self._encode(messages, marks, lambda text: marks.cut + self._control.wrap(text, marks) + marks.cut)
            if self._control_ids(cut) != self._control_ids(ids):
                ids = cut
        return self._with_one_bos(ids)

    def _encode(self, messages: Sequence[Message], marks: "_Marks", prepare: Callable[[str], str]) -> list[int]:
        text = self._render_text([Message(message.role, prepare(message.content)) for message in messages])
        ids: list[int] = []
        for piece, is_plain in self._control.pieces(text, marks):
            ids += self._tokenizer.encode(piece) if is_plain else self._tokenizer.encode_with_control(piece)
        return ids

    def _render_text(self, messages: Sequence[Message]) -> str:
        variables = {
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
            **self._special_texts(),
        }
        typed = sum(len(message.content) for message in messages)
        try:
            if self._sandbox is None:
                self._sandbox = self._make_sandbox(self._source)
            return self._sandbox.render(variables, max_characters=_FREE_CHARACTERS + 4 * typed)
        except TemplateError as error:
            raise ChatTemplateError(model=self._tokenizer.name, reason=str(error.message)) from error

    def _special_texts(self) -> dict[str, str]:
        named = {"bos_token": self._tokenizer.bos_token_id, "eos_token": self._tokenizer.eos_token_id}
        return {name: self._tokenizer.token_text(number) for name, number in named.items() if number is not None}

    def _control_ids(self, ids: Iterable[int]) -> list[int]:
        return [number for number in ids if self._tokenizer.is_control(number)]

    def _with_one_bos(self, ids: list[int]) -> list[int]:
        """Templates and tokenizers both like to put it; the model was trained with one."""
        prefix = self._tokenizer.bos_prefix()
        while prefix and ids[:1] == prefix:
            del ids[0]
        return prefix + ids

    def _check_roles(self, messages: Sequence[Message]) -> None:
        # A role goes into the template's control tokens as it stands.
        for message in messages:
            if message.role not in ROLES:
                reason = f"the role {message.role!r} is none of system, user and assistant"
                raise ChatTemplateError(model=self._tokenizer.name, reason=reason)


@dataclass(frozen=True, slots=True)
class _Marks:
    """Three characters that stand in no text of a conversation."""

    begin: str
    end: str
    cut: str

    @staticmethod
    def unused_in(texts: Iterable[str]) -> "_Marks":
        used = set().union(*texts)
        free = (character for code in _PRIVATE_USE if (character := chr(code)) not in used)
        return _Marks(next(free), next(free), next(free))


class _ControlNames:
    """Finds the names of control tokens in text."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = sorted(filter(None, names), key=lambda name: (-len(name), name))
        self._any_name = "|".join(map(re.escape, self._names)) or r"(?!)"
        self._first_parts = frozenset(name[:length] for name in self._names for length in range(1, len(name)))
        self._last_parts = frozenset(name[length:] for name in self._names for length in range(1, len(name)))

    def wrap(self, text: str, marks: _Marks) -> str:
        """Put marks around every name."""
        return re.sub(self._any_name, lambda match: f"{marks.begin}{match[0]}{marks.end}", text)

    def may_join_at_edge(self, text: str) -> bool:
        """Whether text before or after could complete a name with this text's end or beginning."""
        longest = len(self._names[0]) if self._names else 0
        lengths = range(1, min(longest, len(text) + 1))
        return any(text[-length:] in self._first_parts or text[:length] in self._last_parts for length in lengths)

    def pieces(self, text: str, marks: _Marks) -> Iterator[tuple[str, bool]]:
        """Cut rendered text at the marks: (piece, whether it is plain text).

        A template may have lost one of two marks (it may trim or cut a message): a name beside either is plain.
        """
        begin, end, cut = map(re.escape, (marks.begin, marks.end, marks.cut))
        name = f"(?:{self._any_name})"
        marked = re.compile(f"{begin}({name}){end}?|({name}){end}|[{begin}{end}{cut}]")
        at = 0
        for match in marked.finditer(text):
            yield from _unless_empty(text[at : match.start()], is_plain=False)
            yield from _unless_empty(match[1] or match[2] or "", is_plain=True)
            at = match.end()
        yield from _unless_empty(text[at:], is_plain=False)


def _unless_empty(piece: str, *, is_plain: bool) -> Iterator[tuple[str, bool]]:
    if piece:
        yield piece, is_plain
