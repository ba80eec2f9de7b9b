"""The program's start as a user meets it: whole processes on the offscreen platform."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QColor, QImage

from engine.errors import EngineError
from tests.fakes.model_file import EMPTY_GGUF, model_bytes

ROOT = Path(__file__).parents[2]
READ_ONLY_FOLDER = Path("/proc/sys/kernel")  # a folder in which nobody, root included, can make a file
FAKE = """
import sys
from app.desktop import Desktop
from app.opening import prepare
from app.options import parse_window_options
from tests.fakes.engine import Script
raise SystemExit(Desktop(prepare(parse_window_options(sys.argv[1:])), load_engine=Script().factory).execute())
"""


def start(folder: Path, *words: str, fake: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run until it ends by itself. No display, an empty cache."""
    kept = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    kept.pop("QT_QPA_PLATFORM", None)
    environment = {**kept, "XDG_CACHE_HOME": str(folder / "cache"), **variables}
    program = [sys.executable, "-c", FAKE] if fake else [sys.executable, "-m", "app.main"]
    return subprocess.run(
        [*program, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(EMPTY_GGUF)
    return path


def colours(picture: Path) -> tuple[str, int]:
    """The corner's colour, and how many colours there are."""
    image = QImage(str(picture))
    assert not image.isNull()
    assert (image.width(), image.height()) == (1440, 900)
    seen = {image.pixel(x, y) for x in range(0, 1440, 3) for y in range(0, 900, 3)}
    return image.pixelColor(2, 2).name(), len(seen)


@pytest.mark.parametrize(("theme", "background"), [("light", "#f6f7f9"), ("dark", "#15181d")])
def test_a_screenshot_is_drawn_with_a_model_and_without_a_display(
    tmp_path: Path, model: Path, theme: str, background: str
) -> None:
    picture = tmp_path / "window.png"
    done = start(
        tmp_path, "--data-dir", str(tmp_path), "-m", str(model), "--theme", theme, "--screenshot", str(picture)
    )
    assert (done.returncode, done.stderr) == (0, "")
    corner, number = colours(picture)
    assert corner == background
    assert number > 20
    assert not (tmp_path / "settings.json").exists(), "a picture changes nothing"


def test_a_screenshot_without_any_model_shows_the_choices(tmp_path: Path) -> None:
    picture = tmp_path / "window.png"
    done = start(tmp_path, "--data-dir", str(tmp_path), "--screenshot", str(picture))
    assert (done.returncode, done.stderr) == (0, "")
    assert colours(picture)[1] > 20


@pytest.mark.parametrize("scenario", ["", "slots", "chat"])
@pytest.mark.parametrize("kind", ["foreign", "truncated", "empty", "folder"])
def test_what_is_no_model_is_refused_before_a_window_opens(tmp_path: Path, kind: str, scenario: str) -> None:
    wrong = tmp_path / "wrong.gguf"
    if kind == "folder":
        wrong.mkdir()
    else:
        wrong.write_bytes({"foreign": b"not a model at all", "truncated": EMPTY_GGUF[:-3], "empty": b""}[kind])
    picture = tmp_path / "window.png"
    words = ["--data-dir", str(tmp_path), "-m", str(wrong), "--screenshot", str(picture)]
    done = start(tmp_path, *words, *(["--scenario", scenario] if scenario else []), fake=False)
    assert done.returncode == 2
    assert done.stderr.startswith("kvscope: ")
    assert str(wrong) in done.stderr
    assert done.stderr.count("\n") == 1
    assert not picture.exists()


def test_a_screenshot_of_a_model_that_does_not_load_says_so(tmp_path: Path, model: Path) -> None:
    """Its header is in order, its vocabulary contradicts itself: that is wrong input, too."""
    model.write_bytes(model_bytes({"tokenizer.ggml.merges": ["x y"]}))
    picture = tmp_path / "window.png"
    done = start(tmp_path, "--data-dir", str(tmp_path), "-m", str(model), "--screenshot", str(picture), fake=False)
    assert done.returncode == 2
    assert done.stderr.startswith("kvscope: ")
    assert done.stderr.count("\n") == 1
    assert picture.exists()


def test_a_scenario_is_played_before_the_picture_is_taken(tmp_path: Path, model: Path) -> None:
    words = ["--data-dir", str(tmp_path), "-m", str(model), "--screenshot"]
    pictures = [tmp_path / name for name in ("idle.png", "played.png")]
    assert start(tmp_path, *words, str(pictures[0])).returncode == 0
    done = start(tmp_path, *words, str(pictures[1]), "--scenario", "slots")
    assert (done.returncode, done.stderr) == (0, "")
    decode = QColor("#4477aa").rgb()
    images = [QImage(str(picture)) for picture in pictures]
    bars = [
        sum(image.pixel(x, y) == decode for x in range(900, 1400, 2) for y in range(660, 800, 2)) for image in images
    ]
    assert bars[0] == 0
    assert bars[1] > 10, "the steps of the scenario are not in the picture"


def test_a_scenario_without_a_model_says_so(tmp_path: Path) -> None:
    picture = tmp_path / "window.png"
    done = start(tmp_path, "--data-dir", str(tmp_path), "--scenario", "seed", "--screenshot", str(picture))
    assert done.returncode == 1
    assert "The scenario was not played: there is no model." in done.stderr


def test_an_unknown_scenario_is_refused_with_the_names(tmp_path: Path) -> None:
    done = start(tmp_path, "--data-dir", str(tmp_path), "--scenario", "nonsense", fake=False)
    assert done.returncode == 2
    assert "choose chat, slots or seed" in done.stderr


def test_without_a_display_a_window_is_refused_with_a_sentence(tmp_path: Path) -> None:
    done = start(tmp_path, "--data-dir", str(tmp_path), fake=False)
    assert done.returncode == 1
    assert "There is no display" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_no_reason_to_stay_away(tmp_path: Path, model: Path) -> None:
    picture = tmp_path / "window.png"
    done = start(tmp_path, "--data-dir", str(READ_ONLY_FOLDER), "-m", str(model), "--screenshot", str(picture))
    assert (done.returncode, done.stderr) == (0, "")
    assert picture.exists()


def test_the_start_is_told_to_whoever_asks(tmp_path: Path, model: Path) -> None:
    picture = str(tmp_path / "window.png")
    words = ["--data-dir", str(tmp_path), "-m", str(model), "--screenshot", picture]
    done = start(tmp_path, *words, KVSCOPE_TRACE_START="1")
    found = re.fullmatch(
        r"kvscope start: first paint (\d+) ms, dashboard ready (\d+) ms, model ready (\d+) ms\n", done.stderr
    )
    assert found, done.stderr
    first, dashboard, ready = map(int, found.groups())
    assert first <= dashboard <= ready


def test_the_first_paint_comes_before_torch_and_pyqtgraph(tmp_path: Path) -> None:
    code = (
        "import sys; from app.desktop import Desktop; from app.options import WindowOptions\n"
        "from app.opening import prepare; from pathlib import Path\n"
        "desktop = Desktop(prepare(WindowOptions(data_dir=Path(sys.argv[1]))))\n"
        "def tell():\n"
        "    print([name for name in ('torch', 'transformers', 'pyqtgraph', 'numpy') if name in sys.modules])\n"
        "    desktop.window.close()\n"
        "desktop.window.painted.connect(tell)\n"
        "raise SystemExit(desktop.execute())"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_what_opens_the_window_says_what_is_wrong_as_an_error_for_people() -> None:
    from app.opening import AlreadyOpenError, DisplayError

    for error in (AlreadyOpenError(Path("/x")), DisplayError()):
        assert isinstance(error, EngineError)
        assert str(error).endswith(".")


def test_waiting_threads_of_torch_do_not_spin_unless_the_user_wants_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from app import desktop
    from app.options import WindowOptions

    monkeypatch.setattr(desktop, "prepare", lambda _options: None)
    for given, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
        if given is None:
            monkeypatch.delenv("OMP_WAIT_POLICY")
        assert desktop.run(WindowOptions()) == 0
        assert os.environ["OMP_WAIT_POLICY"] == expected
    assert "KVScope is open already" in capsys.readouterr().out
