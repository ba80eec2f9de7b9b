import pytest
from pytestqt.qtbot import QtBot

from app.monitor.blocks_panel import BlocksPanel, values_text
from app.plots.colours import SEQUENCE_COLOURS, ColourBook
from app.theme import Theme
from engine.events import BlockMap, BlockOwner
from tests.fakes.clock import FakeClock
from tests.fakes.memory import step

MAP = BlockMap(480, 16, owners=(BlockOwner("a", (1, 2, 3), 40), BlockOwner("b", (3, 4), 32)), cached=(9, 8))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme, clock: FakeClock) -> BlocksPanel:
    panel = BlocksPanel(theme, ColourBook(SEQUENCE_COLOURS), {"a": "#1", "b": "#2"}.__getitem__, clock)
    panel.resize(500, 260)
    qtbot.addWidget(panel)
    panel.show()
    qtbot.waitExposed(panel)
    return panel


def test_values_count_waste_by_the_last_blocks() -> None:
    # a fills 40 of 48 places, b all of 32; block 3 is shared and counted once: 4 blocks, 64 places, 8 of them empty.
    assert values_text(MAP) == "4 of 480 used · 16 tokens each · 56 tokens · waste 12.5 %"


def test_values_without_token_counts() -> None:
    unknown = BlockMap(480, 16, owners=(BlockOwner("a", (1,)),), cached=())
    assert values_text(unknown) == "1 of 480 used · 16 tokens each"
    assert values_text(BlockMap(480, 16, (), ())) == "0 of 480 used · 16 tokens each"


def test_legend_names_states_and_owners(panel: BlocksPanel) -> None:
    panel.on_block_map(MAP)
    panel.refresh()
    entries = panel.legend.entries
    assert [entry.text for entry in entries] == ["used 4", "cached 2", "empty 474", "shared 1", "#1", "#2"]
    assert len({entry.colour for entry in entries}) == 6


def test_words_before_a_model_and_an_empty_pool_after(panel: BlocksPanel, clock: FakeClock) -> None:
    panel.show_words("No model is loaded. KV blocks appear here when one is.")
    panel.refresh()
    assert panel.map.message.startswith("No model")
    assert not panel.history.isVisible()
    panel.show_pool(480, 16)
    clock.advance(1)
    panel.refresh()
    assert panel.map.message == ""
    assert panel.history.isVisible()
    assert panel.values.text() == "0 of 480 used · 16 tokens each"


def test_drawn_about_twice_a_second(panel: BlocksPanel, clock: FakeClock) -> None:
    shown = set()
    for frame in range(100):
        panel.on_steps((step(frame, clock(), used=frame),))
        panel.on_block_map(BlockMap(480, 16, (BlockOwner("a", tuple(range(1, frame + 2))),), ()))
        panel.refresh()
        shown.add(panel.values.text())
        clock.advance(0.02)
    assert 4 <= len(shown) <= 6
