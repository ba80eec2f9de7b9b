"""Templates render as in transformers, and a hostile one comes to an end."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from engine.text.template_sandbox import RENDER_LIMIT_S, TemplateSandbox
from engine.text.tokenizer import Tokenizer

MESSAGES = [
    {"role": "system", "content": "  Be <b>brief</b> & 'kind'. "},
    {"role": "user", "content": "Ahoj světe"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "Bye"},
]

TEMPLATES = {
    "loop": "{%- for m in messages %}\n  {{ m['role'] | upper }}: {{ m.content | trim }}\n{% endfor %}",
    "whitespace": "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "tojson": "{{ messages | tojson }}{{ messages[1] | tojson(indent=2) }}",
    "break": "{% for m in messages %}{% if loop.index0 == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "continue": "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}.{% endfor %}",
    "filtered loop": "{% for m in messages if m.role == 'user' %}{{ loop.index }}{% else %}-{% endfor %}",
    "empty loop": "{% for m in messages if m.role == 'x' %}{{ loop.index }}{% else %}-{% endfor %}",
    "macro": "{% macro turn(m) %}[{{ m.role }}]{% endmacro %}{{ turn(messages[0]) ~ 1 ~ 'x' }}",
    "namespace": "{% set s = namespace(n=0) %}{% for m in messages %}{% set s.n = s.n + 1 %}{% endfor %}{{ s.n * 2 }}",
    "select": "{{ messages[::-1][0].content }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "filter block": "{% filter upper %}shout {{ messages[1].content }}{% endfilter %}",
    "operators": "{{ 'a' + 'b' * 3 }}{{ 2 ** 10 }}{{ [1] + [2] }}{{ '%s!' % 'x' }}{{ 7 // 2 }}",
    "block set": "{% set x %}{{ messages[1].content }}{% endset %}{{ x | length }}{{ undefined_name }}",
    "globals": "{{ strftime_now('%Y') }}{{ tools is none }}{{ add_generation_prompt }}",
    "recursive": "{% for a in [[1, [2]], [3]] recursive %}{{ loop(a) if a is iterable else a }}{% endfor %}",
}


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_text_is_that_of_transformers(byte_tokenizer: Tokenizer, source: str) -> None:
    reference = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer._backend)
    expected = reference.apply_chat_template(MESSAGES, chat_template=source, tokenize=False, add_generation_prompt=True)
    variables = {"messages": MESSAGES, "tools": None, "documents": None, "add_generation_prompt": True}
    assert TemplateSandbox(source).render(variables, max_characters=10_000) == expected


def test_now_is_now() -> None:
    assert TemplateSandbox("{{ strftime_now('%Y') }}").render({}, max_characters=10) == str(datetime.now().year)


def ticking_clock() -> Callable[[], float]:
    """A second at each look."""
    times = iter(range(10_000_000))
    return lambda: float(next(times))


ENDLESS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) if false %}{% endfor %}",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "{% for a in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{% macro t() %}{% for a in range(9) %}{% endfor %}{% endmacro %}{% for a in range(9) %}{{ t() }}{% endfor %}",
    "{% for a in range(99999) %}{% set x %}{{ a }}{% endset %}{% endfor %}",
]


@pytest.mark.parametrize("source", ENDLESS)
def test_what_does_not_end_is_ended(source: str) -> None:
    sandbox = TemplateSandbox(source, ticking_clock())
    with pytest.raises(TemplateError, match=f"did not come to an end within {RENDER_LIMIT_S:.0f} seconds"):
        sandbox.render({"messages": MESSAGES}, max_characters=10_000)


def test_each_render_has_its_own_time() -> None:
    sandbox = TemplateSandbox("{% for a in range(3) %}{{ a }}{% endfor %}", ticking_clock())
    for _ in range(5):
        assert sandbox.render({}, max_characters=10) == "012"


TOO_MUCH: list[Any] = [
    "{% for a in range(500) %}{{ 'x' * 50 }}{% endfor %}",
    "{{ 'x' * 10000000000 }}",
    "{{ 10000000000 * 'x' }}",
    "{{ [1] * 10000000000 }}",
    "{% set ns = namespace(x='xx') %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x='xx') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x='xx') %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
    "{% set ns = namespace(x='xx') %}{% for a in range(60) %}{% set ns.x = ns.x | replace('x', 'xx') %}{% endfor %}",
]


@pytest.mark.parametrize("source", TOO_MUCH)
def test_what_grows_too_large_is_ended(source: str) -> None:
    with pytest.raises(TemplateError, match="it writes more than 10,000 characters"):
        TemplateSandbox(source).render({}, max_characters=10_000)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 10 ** 10 ** 10 }}",
        "{% set ns = namespace(n=3) %}{% for a in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    ],
)
def test_numbers_that_grow_too_large_are_refused(source: str) -> None:
    with pytest.raises(TemplateError, match="a number that is too large"):
        TemplateSandbox(source).render({}, max_characters=10_000)


def test_a_macro_that_calls_itself_ends_even_with_time_left() -> None:
    source = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}"
    with pytest.raises(TemplateError, match="RecursionError"):
        TemplateSandbox(source).render({}, max_characters=10_000)
