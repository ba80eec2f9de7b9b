"""Runs a model's Jinja template as what it is: a program from a stranger.

The environment offers what transformers offers to chat templates, behind Jinja's immutable sandbox. On top of it,
loops and macros watch a deadline, and strings a length, both through calls that are woven into the template's syntax
tree.
"""

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

RENDER_LIMIT_S = 5.0
MAX_INTEGER_BITS = 256


class TemplateSandbox:
    """Compiles and renders one template source.

    Args:
        source: Jinja text.
        clock: seconds; only differences count.

    Raises:
        TemplateError: the source is no valid template.
    """

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._environment = _Environment(clock)
        tree = self._environment.parse(source)
        self._template: Template = self._environment.from_string(_Weaver().visit(tree))

    def render(self, variables: Mapping[str, Any], *, max_characters: int) -> str:
        """The text for these variables.

        Raises:
            TemplateError: the template refuses, fails, runs too long or writes too much.
        """
        self._environment.start(max_characters)
        pieces: list[str] = []
        try:
            for piece in self._template.generate(**variables):
                pieces.append(piece)
                self._environment.count(piece)
        except TemplateError:
            raise
        except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
            raise TemplateError(f"{type(error).__name__}: {error}") from error
        return "".join(pieces)


class _GenerationTag(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; its body is rendered as it stands."""

    tags = {"generation"}  # noqa: RUF012 - the library's protocol

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _now
        self._clock = clock
        self._deadline_s = 0.0
        self._max_characters = 0
        self._written_characters = 0

    def start(self, max_characters: int) -> None:
        self._deadline_s = self._clock() + RENDER_LIMIT_S
        self._max_characters = max_characters
        self._written_characters = 0

    def tick(self) -> bool:
        """Called at each turn of a loop and each call of a macro."""
        if self._clock() > self._deadline_s:
            raise SecurityError(f"it did not come to an end within {RENDER_LIMIT_S:.0f} seconds")
        return True

    def checked(self, value: object) -> object:
        """Called with what a filter or a concatenation made."""
        if isinstance(value, str | list | tuple):
            self._check_length(len(value))
        return value

    def count(self, piece: str) -> None:
        self._written_characters += len(piece)
        self._check_length(self._written_characters)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator != "**" and isinstance(left, str | list | tuple):
            self._check_length(len(left) + len(right) if operator == "+" else len(left) * right)
        elif operator == "*" and isinstance(right, str | list | tuple):
            self._check_length(left * len(right))
        elif isinstance(left, int) and isinstance(right, int) and operator != "+":
            bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
            if bits > MAX_INTEGER_BITS:
                raise SecurityError("it computes a number that is too large")
        return super().call_binop(context, operator, left, right)

    def _check_length(self, characters: int) -> None:
        if characters > self._max_characters:
            raise SecurityError(f"it writes more than {self._max_characters:,} characters")


class _Weaver(NodeTransformer):
    """Puts calls of `tick` and `checked` into a template's syntax tree."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the library's protocol
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick")))
        if node.test is not None:
            node.test = nodes.And(_call("tick"), node.test)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802 - the library's protocol
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick")))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - the library's protocol
        self.generic_visit(node)
        return _call("checked", node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802 - the library's protocol
        self.generic_visit(node)
        # Without a value it is the head of a filter block, which has to stay a filter.
        return node if node.node is None else _call("checked", node)


def _call(method: str, *arguments: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
