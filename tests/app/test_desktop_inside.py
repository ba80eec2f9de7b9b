"""What the program remembers and tells, seen from inside."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.instance import Instance
from app.settings_dialog import SettingsDialog
from engine.catalog.fetch import Cancelled, FetchCancelledError, FetchProgress, OnProgress
from engine.config import EngineConfig, SchedulingPolicy
from engine.errors import ModelError
from engine.events import EngineState
from engine.requests import Message, Request
from tests.app.desk import Desk, OpenDesk, open_desks
from tests.app.test_desktop import READ_ONLY_FOLDER, ROOT
from tests.fakes.engine import Script
from tests.fakes.model_file import EMPTY_GGUF


@pytest.fixture
def open_desk(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenDesk]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with open_desks(qtbot, tmp_path) as open_desk:
        yield open_desk


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(EMPTY_GGUF)
    return str(path)


def test_the_last_model_is_loaded_at_the_next_start(open_desk: OpenDesk, model: str) -> None:
    first = open_desk(model=model)
    first.wait_ready()
    first.close()
    second = open_desk()
    second.wait_ready()
    assert second.script.engines[0].info.name == "model.gguf"


KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any
from app.desktop import Desktop
from app.opening import prepare
from app.options import WindowOptions
from engine.events import LoadProgress

def load(config, on_progress):
    on_progress(LoadProgress("Reading weights", 0.5))
    os.kill(os.getpid(), getattr(signal, sys.argv[3]))

options = WindowOptions(data_dir=Path(sys.argv[1]), model=sys.argv[2])
Desktop(prepare(options), load_engine=load).execute()
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_a_load_that_ends_the_program_is_not_tried_by_itself_again(
    open_desk: OpenDesk, tmp_path: Path, model: str, name: str
) -> None:
    """As the system ends a program when the memory runs out, or a driver that crashes."""
    first = open_desk(model=model)
    first.wait_ready()
    first.close()
    killed = subprocess.run(
        [sys.executable, "-X", "faulthandler=0", "-c", KILLED, str(tmp_path), model, name],
        cwd=ROOT, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert killed.returncode == -signal.Signals[name]
    second = open_desk()
    second.wait(lambda: "model.gguf was not loaded" in second.texts)
    assert any("ended without a word while it was loading model.gguf" in text for text in second.texts)
    assert second.script.engines == []
    second.click("Load again")
    second.wait_ready()
    second.close()
    third = open_desk()
    third.wait_ready()


def test_closing_while_a_model_loads_is_no_failure(open_desk: OpenDesk, model: str) -> None:
    first = open_desk(Script(load_gate=threading.Event()), model=model)
    first.wait(lambda: first.client.status.state is EngineState.LOADING)
    first.close()
    second = open_desk(model=model)
    second.wait_ready()
    assert second.window.notices.text == ""
    second.close()
    third = open_desk(Script(load_gate=threading.Event()))
    third.wait(lambda: third.client.status.state is EngineState.LOADING)
    third.close()
    open_desk().wait_ready()


def settings_dialog(desk: Desk) -> SettingsDialog:
    """Opened with its key."""
    desk.press(Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    [dialog] = [each for each in desk.window.findChildren(SettingsDialog) if each.isVisible()]
    return dialog


def control(dialog: SettingsDialog, name: str) -> Any:
    return dialog._fields[name].control


def press(dialog: SettingsDialog, text: str) -> None:
    [button] = [button for button in dialog.findChildren(QPushButton) if button.text() == text]
    button.click()


def test_settings_of_the_engine_hold_from_the_next_load_on(open_desk: OpenDesk, tmp_path: Path, model: str) -> None:
    configs: list[EngineConfig] = []
    script = Script()

    def load(config: EngineConfig, on_progress: Any) -> Any:
        configs.append(config)
        return script.factory(config, on_progress)

    desk = open_desk(script, model=model, load_engine=load)
    desk.wait_ready()
    assert configs[0].threads is None
    assert configs[0].reserved_cores == 1
    dialog = settings_dialog(desk)
    control(dialog, "threads").setValue(3)
    control(dialog, "max_num_seqs").setValue(300)
    control(dialog, "max_model_len").setValue(4096)
    control(dialog, "kv_cache_mib").setValue(512)
    control(dialog, "policy").setCurrentText("Prompts")
    control(dialog, "max_chunk_tokens").setValue(32)
    control(dialog, "dtype").setCurrentText("float32")
    press(dialog, "Save")
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert (saved["threads"], saved["dtype"], saved["kv_cache_mib"]) == (3, "float32", 512)
    assert len(configs) == 1, "nothing is loaded unasked"
    press(settings_dialog(desk), "Save and load again")
    desk.wait(lambda: len(configs) == 2)
    desk.wait_ready()
    config = configs[1]
    assert (config.threads, config.dtype, config.max_model_len) == (3, "float32", 4096)
    assert (config.policy, config.max_chunk_tokens) == (SchedulingPolicy.PREFILL_FIRST, 32)
    assert (config.kv_bytes, config.max_num_seqs, config.max_num_batched_tokens) == (512 * 2**20, 300, 300)


def test_settings_of_the_answers_hold_from_the_next_prompt_on(open_desk: OpenDesk, model: str) -> None:
    requests: list[Request] = []

    def answer(request: Request) -> tuple[str, ...]:
        requests.append(request)
        return ("fine",)

    desk = open_desk(Script(answer=answer), model=model)
    desk.wait_ready()
    dialog = settings_dialog(desk)
    control(dialog, "system_prompt").setPlainText("Be brief.")
    control(dialog, "temperature").setValue(0.0)
    control(dialog, "max_tokens").setValue(64)
    press(dialog, "Save")
    desk.ask("alpha")
    desk.wait(lambda: len(requests) == 1)
    assert requests[0].messages[0] == Message("system", "Be brief.")
    assert (requests[0].sampling.temperature, requests[0].sampling.max_tokens) == (0.0, 64)
    desk.close()
    later = open_desk(Script(answer=answer))
    later.wait_ready()
    later.ask("beta")
    later.wait(lambda: len(requests) == 2)
    assert requests[1].sampling == requests[0].sampling


def test_the_command_line_decides_for_one_run(open_desk: OpenDesk, tmp_path: Path, model: str) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"dtype": "bfloat16", "threads": 2, "last_model": model}))
    configs: list[EngineConfig] = []
    script = Script()

    def load(config: EngineConfig, on_progress: Any) -> Any:
        configs.append(config)
        return script.factory(config, on_progress)

    desk = open_desk(script, load_engine=load, dtype="float32", device="cpu")
    desk.wait_ready()
    assert (configs[0].dtype, configs[0].device, configs[0].threads) == ("float32", "cpu", 2)
    dialog = settings_dialog(desk)
    assert not control(dialog, "dtype").isEnabled()
    assert control(dialog, "dtype").currentData() == "float32"
    press(dialog, "Defaults")
    press(dialog, "Save")
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert (saved["dtype"], saved["device"], saved["threads"]) == ("bfloat16", "auto", None)


def test_a_failed_load_leads_to_the_settings(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(Script(load_error=ModelError("There is no room.")), model=model)
    desk.wait(lambda: "model.gguf cannot be used" in desk.texts)
    desk.click("Settings…")
    [dialog] = desk.window.findChildren(SettingsDialog)
    desk.script.load_error = None
    press(dialog, "Save and load again")
    desk.wait_ready()


def test_the_theme_is_kept(open_desk: OpenDesk, tmp_path: Path) -> None:
    desk = open_desk()
    actions = {action.data(): action for action in desk.window._theme_group.actions()}
    actions["dark"].trigger()
    assert json.loads((tmp_path / "settings.json").read_text())["theme"] == "dark"
    assert desk.desktop._theme.is_dark
    desk.close()
    later = open_desk()
    assert later.desktop._theme.is_dark
    later.window.theme_chosen.emit("light")
    assert not later.desktop._theme.is_dark


def test_broken_settings_are_told(open_desk: OpenDesk, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{")
    desk = open_desk()
    assert "are broken; the defaults hold" in desk.window.notices.text


def test_a_folder_that_cannot_be_written_is_told_and_all_the_rest_works(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(model=model, data_dir=READ_ONLY_FOLDER)
    desk.wait_ready()
    assert f"The data folder {READ_ONLY_FOLDER} cannot be written" in desk.window.notices.text
    desk.window.theme_chosen.emit("dark")
    assert desk.desktop._theme.is_dark


def test_settings_that_cannot_be_saved_later_are_told_once(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = open_desk()

    def fail(*_arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("app.preferences.save_settings", fail)
    desk.window.theme_chosen.emit("dark")
    assert "could not be saved (disk full)" in desk.window.notices.text
    desk.window.notices.dismiss()
    desk.window.theme_chosen.emit("light")
    assert desk.window.notices.text == ""


def test_only_a_dashboard_in_sight_is_watched(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(model=model)
    desk.window.resize(1440, 900)
    desk.wait_ready()
    [engine] = desk.script.engines
    desk.wait(lambda: engine._watched)
    QTest.keyClick(desk.window, Qt.Key.Key_F9)
    desk.wait(lambda: not engine._watched)
    QTest.keyClick(desk.window, Qt.Key.Key_F9)
    desk.wait(lambda: engine._watched)


def test_a_dead_engine_is_told_and_another_model_can_be_loaded(open_desk: OpenDesk, model: str) -> None:
    script = Script(step_error=(1, SystemExit("broken")), cancel_error=SystemExit())
    desk = open_desk(script, model=model)
    desk.wait_ready()
    desk.client.submit(Request(request_id="a", text="hello"))
    desk.wait(lambda: desk.client.status.state is EngineState.FAILED)
    assert any("thread ended unexpectedly" in text for text in desk.texts)
    script.step_error = script.cancel_error = None
    script.engines.clear()
    desk.desktop.models.load_path(model)
    desk.wait_ready()


def test_a_second_start_brings_the_window_to_the_front(open_desk: OpenDesk, tmp_path: Path) -> None:
    desk = open_desk()
    desk.window.showMinimized()
    second = Instance(tmp_path)
    assert not second.claim()
    desk.desktop._opening.instance.raise_asked.emit()
    desk.wait(lambda: not desk.window.isMinimized())


def endless_fetch(_cache_dir: Path, on_progress: OnProgress, cancelled: Cancelled) -> Path:
    on_progress(FetchProgress("Downloading", 1, 100))
    pause = threading.Event()
    while not cancelled():
        pause.wait(0.01)
    raise FetchCancelledError


def test_a_starter_that_was_declined_is_not_fetched_by_itself_again(open_desk: OpenDesk) -> None:
    first = open_desk(fetch=endless_fetch)
    first.wait(lambda: first.desktop.models.is_running)
    first.close()  # closing declines nothing
    second = open_desk(fetch=endless_fetch)
    second.wait(lambda: second.desktop.models.is_running)
    second.click("Cancel")
    second.wait(lambda: not second.desktop.models.is_running)
    second.close()
    third = open_desk(fetch=endless_fetch)
    assert not third.desktop.models.is_running
    third.click("Download")
    third.wait(lambda: third.desktop.models.is_running)
