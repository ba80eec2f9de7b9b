from collections.abc import Iterator

import pytest
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.controller import ChatController
from app.chat.history import History
from app.chat.pane import ChatPane
from app.theme import Theme
from tests.fakes.engine_client import FakeEngineClient


@pytest.fixture
def client(qapp: QApplication) -> FakeEngineClient:
    return FakeEngineClient()


@pytest.fixture
def history() -> Iterator[History]:
    opened = History.unsaved()
    yield opened
    opened.close()


@pytest.fixture
def controller(client: FakeEngineClient, history: History) -> Iterator[ChatController]:
    made = ChatController(client, history)
    yield made
    made.close()


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    qapp.setFont(QFont("DejaVu Sans", 10))
    made = Theme(qapp, "light")
    yield made
    qapp.setStyleSheet("")
    made.setParent(None)
    made.deleteLater()


@pytest.fixture
def pane(qtbot: QtBot, controller: ChatController, theme: Theme) -> ChatPane:
    made = ChatPane(controller, theme, open_link=lambda _address: None)
    qtbot.addWidget(made)
    made.resize(620, 700)
    made.show()
    return made
