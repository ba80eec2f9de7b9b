import pytest

from app.chat.highlight import MIN_CONTRAST, Highlighter, contrast, language_of
from app.theme import DARK, LIGHT, Colours

CODE = 'def greet(name: str) -> str:\n    """Say hello."""\n\n    return f"hello {name}"  # 42\n'


def highlighter(colours: Colours) -> Highlighter:
    return Highlighter(colours.pygments_style, text=colours.text, background=colours.code)


@pytest.mark.parametrize("colours", [LIGHT, DARK])
@pytest.mark.parametrize("language", ["python", "json", "bash", "html", "rust", "sql", "diff"])
def test_runs_lie_in_the_text_in_order_and_can_be_read(colours: Colours, language: str) -> None:
    end = 0
    for run in highlighter(colours).runs(CODE, language):
        assert run.start >= end
        end = run.start + run.length
        assert end <= len(CODE)
        assert contrast(run.look.colour, colours.code) >= MIN_CONTRAST


def test_places_are_exact() -> None:
    code = "\n\n  x = 'text'\r\n"
    marked = [code[run.start : run.start + run.length] for run in highlighter(LIGHT).runs(code, "python")]
    assert "'text'" in "".join(marked)


@pytest.mark.parametrize("language", ["", "no-such-language", "text"])
def test_unknown_languages_are_plain(language: str) -> None:
    assert not list(highlighter(LIGHT).runs(CODE, language))


@pytest.mark.parametrize(
    ("info", "language"),
    [("python", "python"), ("py title=x", "py"), ("{.rust}", "rust"), ("js:app.js", "js"), ("", ""), ("  ", "")],
)
def test_the_language_is_the_first_word(info: str, language: str) -> None:
    assert language_of(info) == language


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
