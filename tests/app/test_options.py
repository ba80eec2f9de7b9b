"""The window's command line, and what the entry does with what it is given."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.main import main
from app.options import COMMANDS, WindowOptions, parse_window_options
from engine.errors import EngineError, ModelError, RefusalError, UsageError


def test_no_words_mean_the_window_as_it_is() -> None:
    assert parse_window_options([]) == WindowOptions()


def test_all_options_are_understood(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    words = ["-m", "x.gguf", "--scenario", "slots", "--screenshot", str(picture), "--data-dir", str(tmp_path / "new")]
    assert parse_window_options([*words, "--theme", "dark"]) == WindowOptions(
        model="x.gguf", scenario="slots", screenshot=picture, data_dir=tmp_path / "new", theme="dark"
    )
    assert (tmp_path / "new").is_dir()


def test_the_engine_is_told_what_was_given_and_nothing_else() -> None:
    options = parse_window_options(["--dtype", "float32", "--threads", "03", "--device", "cuda:1"])
    assert options.engine_settings == {"dtype": "float32", "threads": 3, "device": "cuda:1"}
    assert parse_window_options([]).engine_settings == {}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nonsense"], "There is no command 'nonsense'"),
        (["--nonsense"], "Unrecognized arguments: --nonsense"),
        (["--theme", "pink"], "invalid choice: 'pink'"),
        (["-m"], "expected one argument"),
        (["--screenshot", "/no/such/folder/a.png"], "there is no folder /no/such/folder"),
        (["--screenshot", "/tmp"], "/tmp is a folder"),
        (["--screenshot", "/tmp/a.jpg"], "does not end in .png"),
        (["--data-dir", __file__], "is a file"),
        (["--data-dir", ""], "--data-dir: its text is empty; write one, or leave the option out"),
        (["--data-dir", "  "], "its text is empty"),
        (["--screenshot", ""], "its text is empty"),
        (["-m", ""], "its text is empty"),
        (["--scenario", ""], "its text is empty"),
        (["--dtype", "int4"], "invalid choice: 'int4'"),
        (["--device", "cuda:x"], "'cuda:x' is unknown; use auto, cpu, cuda or cuda:N"),
        (["--threads", "0"], "'0' is no number of threads"),
        (["--threads", "-1"], "'-1' is no number of threads"),
        (["--threads", "two"], "'two' is no number of threads"),
        (["--data-dir", f"{__file__}/below"], "cannot be made"),
    ],
)
def test_wrong_words_are_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError):
        parse_window_options(words)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith("kvscope: ")
    assert error.count("\n") == 1


def test_a_model_that_is_not_there_is_said_before_a_window_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-m", str(tmp_path / "none.gguf"), "--data-dir", str(tmp_path)]) == 2
    assert "There is no model called" in capsys.readouterr().err


def test_each_kind_of_error_has_its_exit_code() -> None:
    assert [kind.exit_code for kind in (UsageError, ModelError, RefusalError, EngineError)] == [2, 2, 3, 1]


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_need_neither_qt_nor_torch(word: str) -> None:
    code = (
        "import sys; from app.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print('code', end.code)\n"
        "print('heavy', [name for name in ('PySide6', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True, check=True)
    assert "code 0" in done.stdout
    assert "heavy []" in done.stdout
    if word == "--help":
        assert all(f"  {name} " in done.stdout for name in COMMANDS)
