"""How errors become exit codes and sentences."""

import pytest
import typer

from app import cli
from engine.cli import terminal
from engine.errors import EngineError, RefusalError, UnknownModelError, UsageError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("What was given is wrong."), 2),
        (UnknownModelError("nobody"), 2),
        (RefusalError("It will not be done."), 3),
        (EngineError("It failed."), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_classes_map_to_exit_codes(
    error: EngineError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*, as_json: bool) -> int:
        raise error

    monkeypatch.setattr(cli, "ps", fail)
    assert cli.run(["ps"]) == code
    said = capsys.readouterr()
    assert said.err == f"{error}\n"
    assert said.out == ""


def test_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*, as_json: bool) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "ps", interrupt)
    assert cli.run(["ps"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_exit_code_of_a_command_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "ps", lambda *, as_json: 7 if as_json else 0)
    assert cli.run(["ps", "--json"]) == 7
    assert cli.run(["ps"]) == 0


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    said = capsys.readouterr().out
    assert "ps" in said
    assert "free" in said


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*, as_json: bool) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "ps", stumble)
    with pytest.raises(ZeroDivisionError):
        cli.run(["ps"])


def test_parse_errors_have_one_base() -> None:
    assert issubclass(typer.BadParameter, terminal._PARSE_ERROR)
    assert terminal._PARSE_ERROR is not Exception
