import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QLineEdit
from pytestqt.qtbot import QtBot

from app.chat.controller import ChatController
from app.chat.conversation_list import ConversationList
from app.chat.conversation_model import Role
from app.chat.history import History
from app.theme import Theme
from tests.fakes.engine_client import FakeEngineClient


@pytest.fixture
def chats(qtbot: QtBot, controller: ChatController, theme: Theme) -> ConversationList:
    made = ConversationList(controller)
    qtbot.addWidget(made)
    made.resize(220, 500)
    made.show()
    return made


def titles(chats: ConversationList) -> list[str]:
    model = chats.view.model()
    return [model.index(row, 0).data() for row in range(model.rowCount())]


def begin(controller: ChatController, client: FakeEngineClient, *prompts: str) -> None:
    for prompt in prompts:
        controller.new_conversation()
        controller.send(prompt)
        client.say(f"answer to {prompt}")
        client.finish()


def test_it_is_empty_at_first_and_says_so(chats: ConversationList) -> None:
    assert titles(chats) == []
    assert "No chats yet" in chats._empty.text()
    assert chats._empty.isVisible()


def test_the_newest_stands_first_and_is_selected(
    chats: ConversationList, controller: ChatController, client: FakeEngineClient
) -> None:
    begin(controller, client, "one", "two")
    assert titles(chats) == ["two", "one"]
    assert chats.view.currentIndex().data() == "two"
    controller.select(controller.conversations[1].id)
    assert chats.view.currentIndex().data() == "one"
    controller.send("again")
    assert titles(chats) == ["one", "two"]
    assert chats.view.currentIndex().data() == "one"


def test_a_new_chat_is_not_in_the_list_until_it_holds_something(
    qtbot: QtBot, chats: ConversationList, controller: ChatController, client: FakeEngineClient
) -> None:
    begin(controller, client, "one")
    with qtbot.waitSignal(controller.selected):
        chats._new.click()
    assert titles(chats) == ["one"]
    assert not chats.view.selectionModel().hasSelection()


def test_choosing_one_brings_it_into_view(
    chats: ConversationList, controller: ChatController, client: FakeEngineClient
) -> None:
    begin(controller, client, "one", "two")
    chats.view.setCurrentIndex(chats.view.model().index(1, 0))
    assert controller.title(controller.current_id) == "one"


def test_a_running_answer_is_marked(
    chats: ConversationList, controller: ChatController, client: FakeEngineClient
) -> None:
    controller.send("one")
    index = chats.view.model().index(0, 0)
    assert index.data(Role.RUNNING) is True
    assert "being answered" in index.data(Qt.ItemDataRole.AccessibleTextRole)
    chats.grab()
    client.finish()
    assert index.data(Role.RUNNING) is False


def test_search_looks_into_titles_and_answers(
    qtbot: QtBot, chats: ConversationList, controller: ChatController, client: FakeEngineClient, history: History
) -> None:
    begin(controller, client, "rivers", "trains")
    history.flush()
    chats.search_field.setText("ANSWER TO RIV")
    qtbot.waitUntil(lambda: titles(chats) == ["rivers"])
    chats.search_field.setText("nowhere")
    qtbot.waitUntil(lambda: titles(chats) == [])
    assert chats._empty.text() == "Nothing found for “nowhere”."
    chats.search_field.setFocus()
    qtbot.keyClick(chats.search_field, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: titles(chats) == ["trains", "rivers"])


@pytest.mark.parametrize("typed", ["word " * 20_000, "W" * 20_000, "a\nb\tc " * 3_000])
def test_a_long_search_is_said_in_short(qtbot: QtBot, chats: ConversationList, typed: str) -> None:
    chats.search_field.setText(typed)
    qtbot.waitUntil(lambda: chats._empty.text().startswith("Nothing"))
    assert len(chats._empty.text()) < 100
    assert chats._empty.text().endswith("…”.")
    assert chats.minimumSizeHint().width() <= 200, "the pane can still be narrow"
    assert chats._empty.height() < 100


def test_rename_in_place(
    qtbot: QtBot, chats: ConversationList, controller: ChatController, client: FakeEngineClient
) -> None:
    begin(controller, client, "one")
    chats.view.setFocus()
    qtbot.keyClick(chats.view, Qt.Key.Key_F2)
    [editor] = chats.view.findChildren(QLineEdit)
    editor.setText("Another")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: controller.title(controller.current_id) == "Another")
    assert titles(chats) == ["Another"]


def test_delete_can_be_undone(
    qtbot: QtBot, chats: ConversationList, controller: ChatController, client: FakeEngineClient
) -> None:
    begin(controller, client, "one", "two")
    chats.view.setFocus()
    qtbot.keyClick(chats.view, Qt.Key.Key_Delete)
    assert titles(chats) == ["one"]
    assert chats.undo_bar.isVisible()
    [undo] = [b for b in chats.undo_bar.findChildren(QAbstractButton) if b.text() == "Undo"]
    undo.click()
    assert titles(chats) == ["two", "one"]
    assert controller.title(controller.current_id) == "two"
    assert not chats.undo_bar.isVisible()


@pytest.mark.parametrize("key", [Qt.Key.Key_Backspace, Qt.Key.Key_Return, Qt.Key.Key_Escape])
def test_no_other_key_deletes(
    qtbot: QtBot, chats: ConversationList, controller: ChatController, client: FakeEngineClient, key: Qt.Key
) -> None:
    begin(controller, client, "one")
    chats.view.setFocus()
    qtbot.keyClick(chats.view, key)
    qtbot.keyClick(chats.search_field, key)
    assert titles(chats) == ["one"]


def test_delete_in_the_search_field_deletes_text_only(
    qtbot: QtBot, chats: ConversationList, controller: ChatController, client: FakeEngineClient
) -> None:
    begin(controller, client, "one")
    chats.search_field.setText("on")
    chats.search_field.setFocus()
    qtbot.keyClick(chats.search_field, Qt.Key.Key_Home)
    qtbot.keyClick(chats.search_field, Qt.Key.Key_Delete)
    assert chats.search_field.text() == "n"
    assert len(controller.conversations) == 1


def test_the_keys_of_the_window(qtbot: QtBot, chats: ConversationList, controller: ChatController) -> None:
    controller.send("one")
    first = controller.current_id
    chats.activateWindow()
    qtbot.waitUntil(chats.isActiveWindow)
    qtbot.keyClick(chats, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    assert controller.current_id != first
    with qtbot.waitSignal(chats.begun):
        chats._new.click()
    qtbot.keyClick(chats, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    assert chats.search_field.hasFocus()


def test_every_button_has_a_name_and_a_tooltip(chats: ConversationList) -> None:
    own = [b for b in chats.findChildren(QAbstractButton) if not isinstance(b.parent(), QLineEdit)]
    assert own
    for button in own:
        assert button.accessibleName()
        assert button.toolTip()
