"""The settings' dialog: what it shows is what it gives back, and nothing is unexplained."""

from dataclasses import fields, replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from app.settings import Settings
from app.settings_dialog import SettingsDialog

CHOSEN = Settings(
    theme="dark", last_model="/models/a.gguf", dtype="float32", device="cuda:1", threads=2, max_num_seqs=8,
    max_num_batched_tokens=512, policy="prefill-first", max_chunk_tokens=128,
    max_model_len=4096, kv_cache_mib=1024, temperature=0.25, top_p=0.5, max_tokens=200,
    system_prompt="Be brief.\nDo not guess.",
)  # fmt: skip


def opened(qtbot: QtBot, settings: Settings, **options: object) -> SettingsDialog:
    dialog = SettingsDialog(settings, **options)  # type: ignore[arg-type]
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    qtbot.addWidget(dialog)
    dialog.show()
    return dialog


def button(dialog: SettingsDialog, text: str) -> QAbstractButton:
    [found] = [each for each in dialog.findChildren(QAbstractButton) if each.text() == text]
    return found


@pytest.mark.parametrize("settings", [Settings(), CHOSEN, replace(CHOSEN, threads=None, temperature=0.0, top_p=1.0)])
def test_what_is_shown_and_not_touched_comes_back_as_it_was(qtbot: QtBot, settings: Settings) -> None:
    dialog = opened(qtbot, settings)
    with qtbot.waitSignal(dialog.saved) as saved:
        button(dialog, "Save").click()
    assert saved.args == [settings]


def test_every_setting_of_engine_and_answers_is_there(qtbot: QtBot) -> None:
    elsewhere = {"theme", "last_model", "fetch_starter", "window_geometry", "pane_sizes_px"}
    elsewhere |= {"list_shown", "dashboard_shown"}
    assert set(opened(qtbot, Settings())._fields) == {item.name for item in fields(Settings)} - elsewhere


def test_the_budget_is_never_below_the_slots(qtbot: QtBot) -> None:
    dialog = opened(qtbot, Settings())
    dialog._fields["max_num_seqs"].show(700)
    assert dialog.chosen.max_num_batched_tokens == 700
    dialog._fields["max_num_batched_tokens"].show(300)
    assert dialog.chosen.max_num_batched_tokens == 700


def test_defaults_are_shown_first_and_saved_when_asked(qtbot: QtBot) -> None:
    dialog = opened(qtbot, CHOSEN)
    button(dialog, "Defaults").click()
    assert dialog.isVisible()
    assert dialog.chosen == replace(Settings(), theme="dark", last_model="/models/a.gguf")


def test_cancel_changes_nothing(qtbot: QtBot) -> None:
    dialog = opened(qtbot, Settings())
    dialog._fields["threads"].show(5)
    with qtbot.assertNotEmitted(dialog.saved):
        button(dialog, "Cancel").click()


@pytest.mark.parametrize("can_load", [False, True])
def test_loading_again_is_offered_where_there_is_a_model(qtbot: QtBot, can_load: bool) -> None:
    dialog = opened(qtbot, Settings(), can_load=can_load, is_busy=True)
    assert button(dialog, "Save and load again").isVisible() == can_load
    warned = any("stops the answers" in label.text() for label in dialog.findChildren(QLabel))
    assert warned == can_load
    order: list[str] = []
    dialog.saved.connect(lambda _settings: order.append("saved"))
    dialog.load_asked.connect(lambda: order.append("load"))
    if can_load:
        button(dialog, "Save and load again").click()
        assert order == ["saved", "load"]


def test_what_the_command_line_decided_is_shown_and_not_changed(qtbot: QtBot) -> None:
    in_force = replace(CHOSEN, threads=1, dtype="bfloat16")
    dialog = opened(qtbot, CHOSEN, given={"threads", "dtype"}, in_force=in_force)
    assert dialog._fields["threads"].read() == 1
    assert not dialog._fields["threads"].control.isEnabled()
    assert dialog.chosen == CHOSEN
    texts = [label.text() for label in dialog.findChildren(QLabel)]
    assert "Decided by the command line for this run (--threads)." in texts


@pytest.mark.parametrize("page", [0, 1])
def test_every_control_has_a_name_and_no_explanation_is_cut(qtbot: QtBot, page: int) -> None:
    dialog = opened(qtbot, Settings())
    dialog.pages.setCurrentIndex(page)
    for field in dialog._fields.values():
        assert field.control.accessibleName()
        assert field.control.toolTip()
    for each in dialog.findChildren(QAbstractButton):
        if each.text():
            assert each.accessibleName()
            assert each.toolTip()
    for label in dialog.pages.currentWidget().findChildren(QLabel):
        assert label.height() >= label.heightForWidth(label.width())
