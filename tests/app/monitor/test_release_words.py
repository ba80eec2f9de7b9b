import pytest

from app.gpu.record import ProcessKind, StopOutcome
from app.monitor import release_words as words
from tests.fakes.memory import GIB, MIB, process, sample
from tests.fakes.release import report

LLAMA = process("llama-server", 42, int(5.8 * GIB), ProcessKind.MODEL_SERVER)
ZED = process("zed", 43, 700 * MIB)
HIDDEN = process("hidden", 44, None)


def test_what_ticking_would_give() -> None:
    look = sample(0, [LLAMA, ZED, HIDDEN], total_bytes=12 * GIB)
    assert words.sum_text(look, ()) == "Nothing ticked. 5.52 GiB are free now."
    assert words.sum_text(look, (LLAMA,)) == (
        "1 process ticked: 5.80 GiB. Free memory would rise from 5.52 to 11.32 GiB."
    )
    assert words.sum_text(look, (LLAMA, HIDDEN)).endswith("11.32 GiB. Of 1 the driver does not tell how much.")


def test_no_blocks_are_promised_to_an_engine_that_keeps_its_pool() -> None:
    look = sample(0, [LLAMA, ZED], total_bytes=12 * GIB)
    assert "block" not in words.sum_text(look, (LLAMA, ZED))


def test_the_consent_names_everybody_and_warns_of_open_windows() -> None:
    many = [process(f"p{pid}", pid, MIB) for pid in range(1, 12)]
    assert words.names_text(many).splitlines()[-1] == "and 3 more"
    assert "PID 42" in words.names_text([LLAMA])
    assert "SIGTERM" in words.ask_text([LLAMA])
    assert "zed" in words.ask_text([LLAMA, ZED])
    assert "llama" not in words.ask_text([LLAMA, ZED])


@pytest.mark.parametrize(
    ("outcomes", "returned", "text"),
    [
        ([(LLAMA, StopOutcome.EXITED)], int(5.72 * GIB), "llama-server stopped, 5.72 of 5.80 GiB back"),
        ([(ZED, StopOutcome.EXITED)], 690 * MIB, "zed stopped, 690 of 700 MiB back"),
        (
            [(LLAMA, StopOutcome.EXITED), (ZED, StopOutcome.KILLED)],
            6 * GIB,
            "2 processes stopped, 6.00 of 6.48 GiB back",
        ),
        (
            [(LLAMA, StopOutcome.EXITED), (ZED, StopOutcome.STILL_RUNNING)],
            int(5.72 * GIB),
            "llama-server stopped, 5.72 of 5.80 GiB back; zed did not exit",
        ),
        ([(ZED, StopOutcome.STILL_RUNNING)], 0, "zed did not exit, nothing came back"),
        ([(ZED, StopOutcome.REFUSED)], 0, "zed: refused"),
        ([(ZED, StopOutcome.ALREADY_GONE)], 0, "zed was already gone"),
    ],
)
def test_the_end_in_one_line(outcomes: list[tuple[object, StopOutcome]], returned: int, text: str) -> None:
    assert words.outcome_text(report(outcomes, finished=True, returned_bytes=returned)) == text  # type: ignore[arg-type]


def test_the_wait_counts_down() -> None:
    waiting = report([(ZED, StopOutcome.WAITING)], finished=False, elapsed_s=3.2)
    assert words.waiting_text(waiting) == "Waiting for 1 process to exit, 7 s left"
    measuring = report([(ZED, StopOutcome.EXITED)], finished=False)
    assert "memory comes back" in words.waiting_text(measuring)


def test_never_more_than_all_came_back() -> None:
    small = process("zed", 9, 293 * MIB)
    end = report([(small, StopOutcome.EXITED)], finished=True, returned_bytes=294 * MIB)
    assert words.came_back_text(end) == "293 of 293 MiB back"
