"""A conversation to the token ids that the model expects. Knows roles and texts, no engine.

What a user types is text, never a control token. In each message every control token's name is marked and broken with
characters that stand nowhere else before the template sees it; in the rendered text only unbroken names are control
tokens, and the marks are dropped. A conversation without such names is encoded in one piece, exactly as transformers'
`apply_chat_template` would.

An answer that carries the ids which the model sampled is given back in these ids. A text has many tokenisations, and
the one that a model samples is often not the one that a tokenizer chooses: encoded anew, the conversation would no
longer be found in the prefix cache. Ids take a text's place only where they say the same, so whatever ids a message
carries, the prompt decodes to the rendered text, and only the template writes control tokens.
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
    "{% for message in messages %}{{ message.role + ':' + ('' if message.role == 'assistant' else ' ') }}"
    "{{ message.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
ROLES = frozenset({"system", "user", "assistant"})
_FREE_CHARACTERS = 1_000_000
_PRIVATE_USE = range(0xE000, 0xF900)
_MOST_CUT_IDS = 16

_Prepare = Callable[[str], str]


class ChatTemplate:
    """The template of one model; belongs to the thread of its tokenizer.

    A model without a template gets a plain "role: text" format.
    """

    def __init__(self, tokenizer: Tokenizer, make_sandbox: Callable[[str], TemplateSandbox] = TemplateSandbox) -> None:
        self._tokenizer = tokenizer
        self._source = tokenizer.chat_template or PLAIN_FORMAT
        self._make_sandbox = make_sandbox
        self._sandbox: TemplateSandbox | None = None
        self._names = _ControlNames(tokenizer.control_tokens)

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
        contents = [message.content for message in messages]
        marks = _Marks.unused_in([self._source, *contents])
        ids = self._encode_conversation(messages, lambda content: self._names.mark(content, marks), marks)
        if any(map(self._names.may_join_at_edge, contents)):
            # The template's own text around a message could complete a name: if cutting the messages off from it
            # changes which control tokens there are, the cut is needed.
            cut_ids = self._encode_conversation(
                messages, lambda content: marks.cut_off(self._names.mark(content, marks)), marks
            )
            if self._control_ids(cut_ids) != self._control_ids(ids):
                ids = cut_ids
        return self._with_one_bos(ids)

    def _encode_conversation(self, messages: Sequence[Message], prepare: _Prepare, marks: "_Marks") -> list[int]:
        text = self._render_text(messages, prepare)
        ids: list[int] = []
        at = 0
        for answer in self._answers_in(text, messages, prepare):
            ids += self._encode(text[at : answer.start], marks, is_beginning=at == 0)
            ids += answer.token_ids
            at = answer.stop
        return ids + self._encode(text[at:], marks, is_beginning=at == 0)

    def _answers_in(self, text: str, messages: Sequence[Message], prepare: _Prepare) -> Iterator["_Answer"]:
        """The answers that stand in the rendered text as their ids say them, in order.

        Each is looked for behind the prompt that it answered: what stands elsewhere is in no cache.
        """
        at = 0
        for index, message in enumerate(messages):
            if index and message.role == "assistant" and self._are_text(message.token_ids):
                start = self._end_of_prompt(text, messages[:index], prepare)
                answer = self._answer_at(start, text, message, prepare) if start >= at else None
                if answer is not None:
                    yield answer
                    at = answer.stop

    def _are_text(self, token_ids: tuple[int, ...]) -> bool:
        return bool(token_ids) and all(map(self._tokenizer.token_bytes, token_ids))

    def _end_of_prompt(self, text: str, messages: Sequence[Message], prepare: _Prepare) -> int:
        """Where the prompt of these messages ends in the text of a longer conversation; -1 if it does not begin so."""
        try:
            prompt = self._render_text(messages, prepare)
        except ChatTemplateError:
            return -1
        return len(prompt) if text.startswith(prompt) else -1

    def _answer_at(self, start: int, text: str, message: Message, prepare: _Prepare) -> "_Answer | None":
        """The answer's ids without those at its end that the text does not show.

        They are white space that the template trims, half a character after a stop, or part of a stop string.
        """
        token_ids = message.token_ids
        for _ in range(min(_MOST_CUT_IDS, len(token_ids))):
            said = self._tokenizer.decode(token_ids)
            if said and message.content.startswith(said):
                # SentencePiece's first word has a space before it, which is not shown but which templates may write.
                has_space = self._tokenizer.token_text(token_ids[0]).startswith(" ") and not said.startswith(" ")
                for shown in (prepare(said), " " + prepare(said)) if has_space else (prepare(said),):
                    if text.startswith(shown, start):
                        return _Answer(start, start + len(shown), token_ids)
            token_ids = token_ids[:-1]
        return None

    def _encode(self, text: str, marks: "_Marks", *, is_beginning: bool = True) -> list[int]:
        if not marks.stand_in(text):
            encode = self._tokenizer.encode_with_control if is_beginning else self._tokenizer.encode_continuation
            return encode(text)
        ids: list[int] = []
        for piece, is_control in self._names.runs(text, marks):
            ids += self._tokenizer.encode_with_control(piece) if is_control else self._tokenizer.encode(piece)
        return ids

    def _render_text(self, messages: Sequence[Message], prepare: _Prepare) -> str:
        variables = {
            "messages": [{"role": message.role, "content": prepare(message.content)} for message in messages],
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
class _Answer:
    """A part of the rendered text, and ids that say the same."""

    start: int
    stop: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Marks:
    """Two characters that stand in no text of a conversation: one around a typed name, one to break text."""

    around: str
    cut: str

    @staticmethod
    def unused_in(texts: Iterable[str]) -> "_Marks":
        used = set().union(*texts)
        free = (character for code in _PRIVATE_USE if (character := chr(code)) not in used)
        return _Marks(next(free), next(free))

    def cut_off(self, text: str) -> str:
        return f"{self.cut}{text}{self.cut}"

    def stand_in(self, text: str) -> bool:
        return self.around in text or self.cut in text

    def pieces(self, text: str) -> list[str]:
        return re.split(f"[{self.around}{self.cut}]", text)


class _ControlNames:
    """Finds the names of control tokens in text."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = sorted(filter(None, names), key=lambda name: (-len(name), name))
        self._any_name = re.compile("|".join(map(re.escape, self._names)) or r"(?!)")
        self._first_parts = frozenset(name[:length] for name in self._names for length in range(1, len(name)))
        self._last_parts = frozenset(name[length:] for name in self._names for length in range(1, len(name)))

    def mark(self, text: str, marks: _Marks) -> str:
        """Break every name, so that none is left even when a template trims or cuts the text."""
        return self._any_name.sub(lambda match: f"{marks.around}{marks.cut.join(match[0])}{marks.around}", text)

    def may_join_at_edge(self, text: str) -> bool:
        """Whether text before or after could complete a name with this text's end or beginning."""
        return any(map(self._may_join, {text, text.strip()}))

    def _may_join(self, text: str) -> bool:
        longest = len(self._names[0]) if self._names else 0
        lengths = range(1, min(longest, len(text) + 1))
        if any(text[-length:] in self._first_parts or text[:length] in self._last_parts for length in lengths):
            return True
        return 0 < len(text) < longest and any(text in name for name in self._names)

    def runs(self, text: str, marks: _Marks) -> Iterator[tuple[str, bool]]:
        """Rendered text without marks, as alternating (plain text, False) and (a control token's name, True)."""
        run = ""
        for piece in marks.pieces(text):
            at = 0
            for match in self._any_name.finditer(piece):
                yield run + piece[at : match.start()], False
                yield match[0], True
                run, at = "", match.end()
            run += piece[at:]
        yield run, False
