from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.scenario_card import ScenarioCard


def test_it_says_what_is_played_and_how_far_it_is(qtbot: QtBot) -> None:
    card = ScenarioCard("slots", "Forty requests on eight slots", 40)
    qtbot.addWidget(card)

    def text() -> str:
        return " | ".join(label.text() for label in card.findChildren(QLabel))

    assert "Scenario slots | 0 of 40 done | Forty requests on eight slots." in text()
    card.show_ended(13)
    assert "13 of 40 done" in text()
    assert "You can chat meanwhile." in text()
    card.show_ended(40)
    assert "All have ended" in text()


def test_it_can_be_closed(qtbot: QtBot) -> None:
    card = ScenarioCard("slots", "Forty requests on eight slots", 40)
    qtbot.addWidget(card)
    card.show()
    card.close_button.click()
    assert not card.isVisible()
    card.show_ended(13)
    assert not card.isVisible(), "news of the scenario do not bring it back"
