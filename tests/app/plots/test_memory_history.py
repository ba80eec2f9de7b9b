"""The bands of the stack against a plain account of each sample."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.gpu.record import MemorySample, ProcessIdentity, ProcessKind
from app.plots.memory_history import GAP_S, NUM_LEADERS, BandRole, MemoryHistory
from tests.fakes.memory import GIB, MIB, process, sample

amounts = st.integers(0, 3000).map(lambda mib: mib * MIB)


@st.composite
def looks(draw: st.DrawFn) -> list[MemorySample]:
    """Samples in which everybody comes and goes and the parts may exceed the whole."""
    samples, time_s = [], 100.0
    for _ in range(draw(st.integers(1, 12))):
        time_s += draw(st.floats(0.2, 9))
        held = draw(st.dictionaries(st.integers(2, 14), amounts, max_size=10))
        rows = [process(f"p{pid}", pid, size) for pid, size in held.items()]
        rows.append(process("kvscope", 1, draw(amounts), ProcessKind.OWN))
        rows.append(process("hidden", 99, None))
        samples.append(
            sample(
                time_s,
                rows,
                unattributed_bytes=draw(st.integers(-500, 900)) * MIB,
                reserved_bytes=300 * MIB,
                shared_bytes=draw(amounts),
            )
        )
    return samples


def full(history: MemoryHistory) -> dict[object, float]:
    """The newest value of every band."""
    assert history.sample is not None
    bands, values = history.read(np.array([history.sample.time_s]))
    return {band.key: float(value) for band, value in zip(bands, values[:, 0], strict=True)}


@settings(max_examples=60, deadline=None)
@given(samples=looks())
def test_every_byte_stands_in_one_band(samples: list[MemorySample]) -> None:
    history = MemoryHistory()
    for look in samples:
        history.push(look)
    newest = samples[-1]
    bands, _ = history.read(np.array([newest.time_s]))
    by_key = {band.key: band.now_bytes for band in bands}
    foreign = {p.identity: p.memory_bytes or 0 for p in newest.processes if p.kind is not ProcessKind.OWN}
    own = sum(p.memory_bytes or 0 for p in newest.processes if p.kind is ProcessKind.OWN)
    named = [key for key in by_key if isinstance(key, ProcessIdentity)]
    assert len(named) <= NUM_LEADERS
    assert {key: by_key[key] for key in named} == {key: foreign.get(key, 0) for key in named}
    assert by_key[BandRole.OWN] == own
    assert by_key[BandRole.SHARED] == newest.shared_bytes
    assert by_key[BandRole.DRIVER] == newest.reserved_bytes
    assert by_key[BandRole.UNKNOWN] == max(0, newest.unattributed_bytes)
    rest = sum(size for key, size in foreign.items() if key not in named)
    assert by_key[BandRole.OTHERS] == rest


@settings(max_examples=60, deadline=None)
@given(samples=looks(), data=st.data())
def test_the_stack_is_never_above_the_total_and_has_gaps_where_nobody_looked(
    samples: list[MemorySample], data: st.DataObject
) -> None:
    history = MemoryHistory()
    for look in samples:
        history.push(look)
    newest = samples[-1]
    at = newest.time_s - np.array(data.draw(st.lists(st.floats(0, 120), min_size=1, max_size=30)))
    _, values = history.read(at)
    moments = [look.time_s for look in samples]
    for column, moment in enumerate(at):
        before = [time_s for time_s in moments if time_s <= moment]
        after = [time_s for time_s in moments if time_s >= moment]
        is_gap = not before or not after or min(after) - max(before) > GAP_S
        assert np.isnan(values[:, column]).all() == is_gap
        if not is_gap:
            assert (values[:, column] >= -1e-3).all()
            assert values[:, column].sum() <= newest.total_bytes + 1


def test_the_largest_get_a_band_and_keep_it() -> None:
    history = MemoryHistory()
    rows = [process(f"p{pid}", pid, (20 - pid) * MIB) for pid in range(1, 12)]
    history.push(sample(0, rows))
    first = history.leaders()
    assert [identity.pid for identity in first] == [1, 2, 3, 4, 5, 6]
    history.push(sample(1, rows[1:]))  # the largest has gone; its past is still in the picture
    assert history.leaders() == first
    assert full(history)[ProcessIdentity(1, 10)] == 0


def test_a_reused_pid_is_another_process() -> None:
    history = MemoryHistory()
    old, new = process("old", 7, GIB), process("new", 7, 2 * GIB)
    new = type(new)(**{name: getattr(new, name) for name in new.__slots__} | {"identity": ProcessIdentity(7, 999)})
    history.push(sample(0, [old]))
    history.push(sample(1, [new]))
    bands, _ = history.read(np.array([1.0]))
    assert {band.name: band.now_bytes for band in bands if band.name in ("old", "new")} == {"old": 0, "new": 2 * GIB}


def test_another_device_starts_anew() -> None:
    history = MemoryHistory()
    history.push(sample(0, [process("a", 5, 5 * GIB)]))
    history.push(sample(1, [process("b", 6, GIB)], device="Other card"))
    assert history.peak_bytes == GIB
    assert [band.name for band in history.read(np.array([1.0]))[0] if isinstance(band.key, ProcessIdentity)] == ["b"]


def test_before_the_first_sample() -> None:
    bands, values = MemoryHistory().read(np.array([1.0, 2.0]))
    assert bands == ()
    assert values.shape == (0, 2)


def test_processes_of_the_same_name_are_told_apart_by_their_pid() -> None:
    history = MemoryHistory()
    history.push(sample(0, [process("python", 5, GIB), process("python", 6, GIB), process("zed", 7, GIB)]))
    bands, _ = history.read(np.array([0.0]))
    names = [band.name for band in bands if isinstance(band.key, ProcessIdentity)]
    assert names == ["python (5)", "python (6)", "zed"]
