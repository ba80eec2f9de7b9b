"""The window's frame: panes, tabs, keys, what is remembered. Its contents are plain widgets here."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QDialog, QLabel, QTabBar, QWidget
from pytestqt.qtbot import QtBot

from app.key_sheet import KeyRow
from app.window import MainWindow


@pytest.fixture
def panes() -> tuple[QWidget, QWidget, QWidget]:
    return QLabel("list"), QLabel("chat"), QLabel("graphs")


@pytest.fixture
def window(qtbot: QtBot, panes: tuple[QWidget, QWidget, QWidget]) -> MainWindow:
    window = MainWindow()
    window.set_list(panes[0])
    window.set_chat(panes[1])
    window.set_dashboard(panes[2])
    qtbot.addWidget(window, before_close_func=MainWindow.finish)
    with qtbot.waitSignal(window.painted):
        window.show()
    qtbot.waitActive(window)
    return window


def shown(panes: tuple[QWidget, QWidget, QWidget]) -> list[bool]:
    return [pane.isVisible() for pane in panes]


def press(window: MainWindow, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    QTest.keyClick(window, key, modifier)


def tab_bar(window: MainWindow) -> QTabBar:
    [tabs] = window.findChildren(QTabBar)
    return tabs


@pytest.mark.parametrize("width", [1280, 1440, 1920])
def test_three_panes_share_the_width(
    qtbot: QtBot, window: MainWindow, panes: tuple[QWidget, QWidget, QWidget], width: int
) -> None:
    window.resize(width, 800)
    qtbot.waitUntil(lambda: window.width() == width)
    assert shown(panes) == [True, True, True]
    assert not tab_bar(window).isVisible()
    widths = [pane.width() for pane in panes]
    assert widths[1] > widths[2] > widths[0] >= 140
    assert widths[2] >= 400


def test_f9_and_ctrl_b_close_and_open_the_side_panes(
    window: MainWindow, panes: tuple[QWidget, QWidget, QWidget]
) -> None:
    press(window, Qt.Key.Key_F9)
    assert shown(panes) == [True, True, False]
    press(window, Qt.Key.Key_B, Qt.KeyboardModifier.ControlModifier)
    assert shown(panes) == [False, True, False]
    press(window, Qt.Key.Key_F9)
    press(window, Qt.Key.Key_B, Qt.KeyboardModifier.ControlModifier)
    assert shown(panes) == [True, True, True]


def test_a_narrow_window_turns_the_dashboard_into_a_tab(
    qtbot: QtBot, window: MainWindow, panes: tuple[QWidget, QWidget, QWidget]
) -> None:
    window.resize(900, 700)
    qtbot.waitUntil(tab_bar(window).isVisible)
    assert shown(panes) == [True, True, False]
    press(window, Qt.Key.Key_F9)
    assert shown(panes) == [True, False, True]
    tab_bar(window).setCurrentIndex(0)
    assert shown(panes) == [True, True, False]
    window.resize(1200, 700)
    qtbot.waitUntil(lambda: not tab_bar(window).isVisible())
    assert shown(panes) == [True, True, True]


def test_what_is_remembered_is_restored(qtbot: QtBot, window: MainWindow) -> None:
    window.resize(780, 590)  # the offscreen platform's screen has 800 x 800 pixels
    window.restore(geometry="", sizes_px=(200, 500, 550), list_shown=True, dashboard_shown=False)
    other = MainWindow()
    qtbot.addWidget(other, before_close_func=MainWindow.finish)
    other.restore(
        geometry=window.geometry_text,
        sizes_px=window.pane_sizes_px,
        list_shown=window.list_shown,
        dashboard_shown=window.dashboard_shown,
    )
    assert other.pane_sizes_px == (200, 500, 550)
    assert other.list_shown
    assert not other.dashboard_shown
    assert (other.width(), other.height()) == (780, 590)


@pytest.mark.parametrize("sizes", [(), (1, 2), (0, 0, 0), (1, 2, 3, 4)])
def test_senseless_sizes_are_ignored(window: MainWindow, sizes: tuple[int, ...]) -> None:
    window.restore(geometry="%%%", sizes_px=sizes, list_shown=True, dashboard_shown=True)
    assert window.pane_sizes_px == ()


def test_closing_asks_first(qtbot: QtBot, window: MainWindow) -> None:
    with qtbot.waitSignal(window.close_asked):
        window.close()
    assert window.isVisible()
    window.finish()
    assert not window.isVisible()


def test_a_pane_can_be_filled_again(qtbot: QtBot, window: MainWindow) -> None:
    later = QLabel("later")
    window.set_dashboard(later)
    qtbot.waitUntil(later.isVisible)


def test_the_key_sheet_lists_keys_that_work(qtbot: QtBot, window: MainWindow) -> None:
    window.set_key_rows([KeyRow("Chat", "Enter", "Send")])
    press(window, Qt.Key.Key_Slash, Qt.KeyboardModifier.ControlModifier)
    [sheet] = [dialog for dialog in window.findChildren(QDialog) if dialog.isVisible()]
    texts = [label.text() for label in sheet.findChildren(QLabel)]
    for expected in ("Ctrl+B", "F9", "Ctrl+/", "Ctrl+Q", "Ctrl+O", "Enter", "Send", "Chat"):
        assert expected in texts
    sheet.reject()
    qtbot.waitUntil(lambda: not any(dialog.isVisible() for dialog in window.findChildren(QDialog)))


def test_about_tells_versions(qtbot: QtBot, window: MainWindow) -> None:
    window.show_about()
    [about] = [dialog for dialog in window.findChildren(QDialog) if dialog.isVisible()]
    assert any("Python 3" in label.text() for label in about.findChildren(QLabel))
    about.reject()


def test_the_theme_menu_tells_the_choice_and_the_mark_follows(qtbot: QtBot, window: MainWindow) -> None:
    window.set_theme_choice("dark")
    actions = {action.data(): action for action in window._theme_group.actions()}
    assert [choice for choice, action in actions.items() if action.isChecked()] == ["dark"]
    with qtbot.waitSignal(window.theme_chosen) as chosen:
        actions["light"].trigger()
    assert chosen.args == ["light"]


def test_every_button_has_a_name_and_a_tooltip(window: MainWindow) -> None:
    window.notices.add("Something to know.")
    window.show_keys()
    window.show_about()
    buttons = [button for button in window.findChildren(QAbstractButton) if button.parent() is not tab_bar(window)]
    assert buttons
    for button in buttons:
        assert button.accessibleName(), button.text()
        assert button.toolTip(), button.text()
    for dialog in window.findChildren(QDialog):
        dialog.reject()


def test_notices_come_one_after_the_other(window: MainWindow) -> None:
    notices = window.notices
    for sentence in ("first", "", "second", "first"):
        notices.add(sentence)
    assert (notices.text, notices.isVisible()) == ("first", True)
    notices.dismiss()
    assert notices.text == "second"
    notices.dismiss()
    assert (notices.text, notices.isVisible()) == ("", False)
