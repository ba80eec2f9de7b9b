"""How downloads and models are told."""

import pytest

from app.models.wording import describe_fetch, describe_model, megabytes
from engine.catalog.fetch import FetchProgress
from tests.fakes.engine import model_info


@pytest.mark.parametrize(
    ("done", "total", "elapsed_s", "text"),
    [
        (0, 0, 0.0, ""),
        (5_000_000, 0, 3.0, "5 MB"),
        (0, 92_871_040, 0.0, "0 of 93 MB"),
        (41_000_000, 92_871_040, 0.5, "41 of 93 MB"),  # too early to tell
        (46_435_520, 92_871_040, 12.0, "46 of 93 MB, 12 s left"),
        (1_000_000, 93_000_000, 10.0, "1 of 93 MB, 15 min left"),
        (92_871_040, 92_871_040, 30.0, "93 of 93 MB"),
    ],
)
def test_a_download_says_how_much_and_how_long(done: int, total: int, elapsed_s: float, text: str) -> None:
    assert describe_fetch(FetchProgress("Downloading", done, total), elapsed_s) == text


def test_sizes_are_decimal_as_files_are_sold() -> None:
    assert megabytes(98_362_432) == "98 MB"
    assert megabytes(1_400_000_000) == "1.4 GB"


def test_a_model_says_how_it_runs() -> None:
    assert describe_model(model_info()) == "bfloat16 · CPU, 2 threads · gather + SDPA"
