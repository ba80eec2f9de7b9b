"""The whole way through "Free memory…" with a release that the test plays."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from app.gpu.record import ProcessIdentity, ProcessKind, ProcessMemory, StopOutcome
from app.monitor.release_dialog import ReleaseDialog, Stage
from app.theme import Theme
from tests.fakes.memory import GIB, MIB, process, sample
from tests.fakes.release import report

LLAMA = process("llama-server", 42, int(5.8 * GIB), ProcessKind.MODEL_SERVER)
ZED = process("zed", 43, 700 * MIB)
XORG = process("Xorg", 44, 500 * MIB, ProcessKind.DESKTOP, "needed by the desktop or the system")
OWN = process("kvscope", 45, 2 * GIB, ProcessKind.OWN, "KVScope itself")
EVERYBODY = [LLAMA, ZED, XORG, OWN]


class Wishes:
    def __init__(self, dialog: ReleaseDialog) -> None:
        self.asked: list[tuple[ProcessIdentity, ...]] = []
        self.forced: list[tuple[ProcessIdentity, ...]] = []
        dialog.release_requested.connect(self.asked.append)
        dialog.kill_requested.connect(self.forced.append)


@pytest.fixture
def dialog(qtbot: QtBot, theme: Theme) -> ReleaseDialog:
    dialog = ReleaseDialog()
    qtbot.addWidget(dialog)
    dialog.on_sample(sample(0, EVERYBODY))
    dialog.open_again()
    qtbot.waitExposed(dialog)
    return dialog


@pytest.fixture
def wishes(dialog: ReleaseDialog) -> Wishes:
    return Wishes(dialog)


def tick(dialog: ReleaseDialog, *names: str) -> None:
    model = dialog.choose.offered.model_of_processes
    for row, offered in enumerate(model.processes):
        if offered.name in names:
            model.toggle(row)


def names(processes: tuple[ProcessMemory, ...]) -> list[str]:
    return [each.name for each in processes]


def ask(dialog: ReleaseDialog, *chosen: str) -> None:
    tick(dialog, *chosen)
    dialog.choose.ask_button.click()
    dialog.consent.agree_button.click()


def test_nothing_is_ticked_and_protected_ones_are_not_offered(dialog: ReleaseDialog, wishes: Wishes) -> None:
    assert names(dialog.choose.offered.model_of_processes.processes) == ["llama-server", "zed"]
    assert dialog.choose.ticked == ()
    assert not dialog.choose.ask_button.isEnabled()
    refused = dialog.choose.not_offered
    assert not refused.isVisible()
    dialog.choose.not_offered_toggle.click()
    assert refused.isVisible()
    assert not refused.isEnabled()
    assert {each.protected_because for each in refused.model_of_processes.processes} == {
        "needed by the desktop or the system",
        "KVScope itself",
    }


def test_one_confirmation_then_the_chosen_identities_are_asked(dialog: ReleaseDialog, wishes: Wishes) -> None:
    tick(dialog, "llama-server")
    assert dialog.choose.ask_button.text() == "Ask 1 process to exit…"
    dialog.choose.ask_button.click()
    assert dialog.stage is Stage.CONFIRMING
    assert wishes.asked == []
    assert dialog.consent.back_button.hasFocus()
    dialog.consent.agree_button.click()
    assert wishes.asked == [(ProcessIdentity(42, 420),)]
    assert wishes.forced == []
    assert dialog.stage is Stage.WAITING


def test_ticks_survive_samples_and_leave_with_their_process(dialog: ReleaseDialog, wishes: Wishes) -> None:
    tick(dialog, "llama-server", "zed")
    grown = process("zed", 43, 9 * GIB)
    dialog.on_sample(sample(1, [grown, LLAMA, process("new", 50, GIB)], total_bytes=24 * GIB))
    assert names(dialog.choose.ticked) == ["zed", "llama-server"]
    dialog.on_sample(sample(2, [LLAMA]))
    assert names(dialog.choose.ticked) == ["llama-server"]


def test_wait_then_result(dialog: ReleaseDialog, wishes: Wishes) -> None:
    ask(dialog, "llama-server")
    dialog.on_release(report([(LLAMA, StopOutcome.WAITING)], finished=False, elapsed_s=2))
    assert dialog.stage is Stage.WAITING
    assert dialog.progress.headline.text() == "Waiting for 1 process to exit, 8 s left"
    assert dialog.progress.countdown.value() == 200
    assert not dialog.progress.force_button.isVisible()
    dialog.on_release(report([(LLAMA, StopOutcome.EXITED)], finished=True, returned_bytes=int(5.72 * GIB)))
    assert dialog.stage is Stage.DONE
    assert dialog.progress.headline.text() == "llama-server stopped, 5.72 of 5.80 GiB back"
    assert not dialog.progress.force_button.isVisible()
    assert wishes.forced == []


def test_sigkill_needs_a_consent_of_its_own(dialog: ReleaseDialog, wishes: Wishes) -> None:
    ask(dialog, "llama-server", "zed")
    end = report(
        [(LLAMA, StopOutcome.EXITED), (ZED, StopOutcome.STILL_RUNNING)],
        finished=True,
        returned_bytes=5 * GIB,
        reason="it ignores SIGTERM or needs longer",
    )
    dialog.on_release(end)
    states = [dialog.progress.states.item(row, 3).text() for row in range(2)]
    assert states == ["exited", "did not exit: it ignores SIGTERM or needs longer"]
    assert dialog.progress.force_button.text() == "Force 1 to end (SIGKILL)…"
    dialog.progress.force_button.click()
    assert dialog.stage is Stage.CONFIRMING_FORCE
    assert wishes.forced == []
    assert "unsaved work is lost" in dialog.consent.explanation.text()
    assert dialog.consent.back_button.hasFocus()
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert dialog.stage is Stage.DONE
    assert wishes.forced == []
    dialog.progress.force_button.click()
    dialog.consent.agree_button.click()
    assert wishes.forced == [(ProcessIdentity(43, 430),)]
    assert len(wishes.asked) == 1
    dialog.on_release(report([(ZED, StopOutcome.KILLED)], finished=True, returned_bytes=700 * MIB))
    assert dialog.progress.headline.text() == "zed stopped, 700 of 700 MiB back"


@pytest.mark.parametrize("stage", list(Stage))
def test_escape_is_safe_at_every_stage(dialog: ReleaseDialog, wishes: Wishes, stage: Stage) -> None:
    reach = {
        Stage.CHOOSING: 0,
        Stage.CONFIRMING: 1,
        Stage.WAITING: 2,
        Stage.DONE: 3,
        Stage.CONFIRMING_FORCE: 4,
    }[stage]
    tick(dialog, "zed")
    if reach >= 1:
        dialog.choose.ask_button.click()
    if reach >= 2:
        dialog.consent.agree_button.click()
    if reach >= 3:
        dialog.on_release(report([(ZED, StopOutcome.STILL_RUNNING)], finished=True))
    if reach >= 4:
        dialog.progress.force_button.click()
    assert dialog.stage is stage
    asked = list(wishes.asked)
    for _ in range(3):
        QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()
    assert wishes.asked == asked
    assert wishes.forced == []


def test_enter_never_agrees(dialog: ReleaseDialog, wishes: Wishes) -> None:
    tick(dialog, "zed")
    for _ in range(3):
        QTest.keyClick(dialog, Qt.Key.Key_Return)
    dialog.choose.ask_button.click()
    for _ in range(3):
        QTest.keyClick(dialog, Qt.Key.Key_Return)
    assert wishes.asked == []


def test_a_wait_goes_on_when_the_dialog_is_closed_and_opened_again(dialog: ReleaseDialog, wishes: Wishes) -> None:
    ask(dialog, "zed")
    dialog.close()
    dialog.open_again()
    assert dialog.stage is Stage.WAITING
    dialog.close()
    dialog.on_release(report([(ZED, StopOutcome.EXITED)], finished=True))
    dialog.open_again()
    assert dialog.stage is Stage.CHOOSING
    assert dialog.choose.ticked == ()


def test_a_release_that_cannot_go_on_is_not_waited_for(dialog: ReleaseDialog, wishes: Wishes) -> None:
    ask(dialog, "zed")
    dialog.on_failure("Nobody was asked to exit. GPU 0 stopped answering.")
    assert dialog.stage is Stage.DONE
    assert "GPU 0" in dialog.progress.headline.text()
    dialog.progress.again_button.click()
    assert dialog.stage is Stage.CHOOSING


def test_every_button_says_what_it_does(dialog: ReleaseDialog, wishes: Wishes) -> None:
    for button in dialog.findChildren(QAbstractButton):
        if button.text():
            assert button.accessibleName()
            assert button.toolTip()


def test_who_holds_next_to_nothing_is_shown_when_asked_for(dialog: ReleaseDialog) -> None:
    sleepers = [process("sleep", pid, 90_000) for pid in range(100, 140)]
    unknown = process("mystery", 200, None)
    dialog.on_sample(sample(1, [*EVERYBODY, unknown, *sleepers]))
    page = dialog.choose
    shown = page.offered.model_of_processes
    assert names(shown.processes) == ["llama-server", "zed", "mystery"]
    assert page.small_box.text() == "Show the 40 that hold less than 1 MiB, too"
    page.small_box.setChecked(True)
    assert len(shown.processes) == 43
    tick(dialog, "sleep")
    page.small_box.setChecked(False)
    assert len(page.ticked) == 40, "what the user has ticked stays in view"
    dialog.on_sample(sample(2, EVERYBODY))
    assert not page.small_box.isVisible()
