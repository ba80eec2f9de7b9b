"""Pictures against pixel-by-pixel twins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.plots.raster import HATCH_PERIOD_PX, PAPER, draw_cells, draw_stack, fit_cells, hatch, stack_tops, widen

HEIGHT = 20
values = hnp.arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.floats(0, 9))


@given(values=values)
def test_each_column_is_filled_from_the_ground_up(values: np.ndarray) -> None:
    numbers = tuple(range(1, len(values) + 1))
    picture = draw_stack(stack_tops(values, 1.0, HEIGHT), numbers, HEIGHT)
    for column in range(values.shape[1]):
        ends = [min(HEIGHT, round(float(values[: band + 1, column].sum()))) for band in range(len(values))]
        expected = []
        for height in range(1, HEIGHT + 1):
            band = next((band for band, end in enumerate(ends) if height <= end), None)
            expected.append(PAPER if band is None else numbers[band])
        assert picture[::-1, column].tolist() == expected


@given(values=values)
def test_what_is_there_can_be_seen(values: np.ndarray) -> None:
    tops = stack_tops(values, 0.01, 100, least_px=2)
    heights = np.diff(tops, axis=0, prepend=0)
    assert (heights[values > 0] >= 2).all()
    assert (stack_tops(values, 1e6, HEIGHT, least_px=2) <= HEIGHT).all()


def test_a_gap_is_paper() -> None:
    rows = np.array([[3.0, np.nan, 3.0], [2.0, np.nan, 2.0]])
    picture = draw_stack(stack_tops(rows, 1.0, HEIGHT), (1, 2), HEIGHT)
    assert (picture[:, 1] == PAPER).all()
    assert (picture[:, 0] == picture[:, 2]).all()


def test_hatching_cuts_stripes_into_one_number_only() -> None:
    picture = np.full((12, 12), 7, dtype=np.uint8)
    picture[6:] = 3
    hatch(picture, 7)
    assert (picture[6:] == 3).all()
    assert (picture[:6] == 7).sum() == 6 * 12 * 2 // HATCH_PERIOD_PX


@given(columns=st.integers(0, 12), bar=st.integers(2, 6), width=st.integers(1, 80))
def test_bars_stand_apart(columns: int, bar: int, width: int) -> None:
    picture = np.full((3, columns), 5, dtype=np.uint8)
    wide = widen(picture, bar, width)
    assert wide.shape == (3, width)
    for x in range(width):
        is_bar = x // bar < columns and x % bar != bar - 1
        assert wide[0, x] == (5 if is_bar else PAPER)


@given(count=st.integers(1, 40_000), width=st.integers(20, 900), height=st.integers(20, 300))
def test_all_blocks_have_a_cell_inside(count: int, width: int, height: int) -> None:
    grid = fit_cells(count, width, height)
    assert grid.columns * grid.rows * grid.per_cell >= count
    assert grid.columns * grid.cell_px <= width
    assert grid.rows * grid.cell_px <= height
    if grid.per_cell == 1 and grid.cell_px < 20:
        larger = grid.cell_px + 1
        assert -(-count // (width // larger)) * larger > height
    picture = draw_cells(np.ones(count, dtype=np.uint8), grid)
    assert picture.shape == (grid.rows * grid.cell_px, grid.columns * grid.cell_px)


@given(numbers=st.lists(st.integers(1, 9), min_size=1, max_size=300), data=st.data())
def test_a_cell_shows_its_blocks(numbers: list[int], data: st.DataObject) -> None:
    grid = fit_cells(len(numbers), data.draw(st.integers(8, 200)), data.draw(st.integers(4, 60)))
    picture = draw_cells(np.array(numbers, dtype=np.uint8), grid)
    for cell in range(grid.columns * grid.rows):
        row, column = divmod(cell, grid.columns)
        top, left = row * grid.cell_px, column * grid.cell_px
        blocks = numbers[cell * grid.per_cell : (cell + 1) * grid.per_cell]
        assert picture[top, left] == max(blocks, default=PAPER)
        assert grid.cell_at(left + 0.5, top + 0.5) == cell
        if grid.gap_px:
            assert picture[top + grid.cell_px - 1, left] == PAPER


def test_beside_the_grid_is_no_cell() -> None:
    grid = fit_cells(10, 100, 30)
    assert grid.cell_at(-1, 0) is None
    assert grid.cell_at(0, 10_000) is None
