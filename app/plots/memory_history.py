"""Memory by process over time, as bands of a stack. No Qt.

Every byte that is used stands in exactly one band: the driver's reserve, the smaller processes together, the larger
ones each, our own process, shared memory, and what nobody in the list accounts for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from app.gpu.record import MemorySample, ProcessIdentity, ProcessKind
from app.plots.series import Floats, StackedSeries, interpolate

WINDOW_S = 120.0
GAP_S = 6.5  # the slowest pace of the sampler is one look in 5 s
NUM_LEADERS = 6
_CAPACITY = 640  # 120 s at 4 Hz, and some


class BandRole(Enum):
    """What a band stands for when it is not one foreign process."""

    DRIVER = "driver"
    OTHERS = "others"
    OWN = "KVScope"
    SHARED = "shared"
    UNKNOWN = "unknown"


BandKey = ProcessIdentity | BandRole


@dataclass(frozen=True, slots=True)
class Band:
    """One layer of the stack."""

    key: BandKey
    name: str
    now_bytes: float


class MemoryHistory:
    """The last two minutes of one device."""

    def __init__(self) -> None:
        self._series: StackedSeries[BandKey] = StackedSeries(_CAPACITY)
        self._names: dict[ProcessIdentity, str] = {}
        self._sample: MemorySample | None = None

    @property
    def sample(self) -> MemorySample | None:
        """The newest look; None before the first."""
        return self._sample

    @property
    def peak_bytes(self) -> float:
        """The highest use within the window."""
        return float(self._series.total(self._start_s).max(initial=0.0))

    @property
    def _start_s(self) -> float:
        return self._sample.time_s - WINDOW_S - 1.0 if self._sample else 0.0

    def push(self, sample: MemorySample) -> None:
        """Add one look. A look at another device starts anew."""
        if self._sample is not None and self._sample.device != sample.device:
            self._series = StackedSeries(_CAPACITY)
        self._sample = sample
        values: dict[BandKey, float] = {
            BandRole.DRIVER: sample.reserved_bytes,
            BandRole.SHARED: sample.shared_bytes,
            BandRole.UNKNOWN: max(0, sample.unattributed_bytes),
            BandRole.OWN: 0,
        }
        for process in sample.processes:
            key = BandRole.OWN if process.kind is ProcessKind.OWN else process.identity
            # What the driver does not tell is part of the unattributed rest already, never 0 bytes of a band.
            if process.memory_bytes is not None:
                values[key] = values.get(key, 0) + process.memory_bytes
                self._names[process.identity] = process.name
        self._series.push(sample.time_s, values)
        self._names = {key: name for key, name in self._names.items() if key in self._series.keys}

    def leaders(self) -> tuple[ProcessIdentity, ...]:
        """The foreign processes that have a band of their own."""
        leaders = self._series.leaders(self._start_s, NUM_LEADERS, without=list(BandRole))
        return tuple(key for key in leaders if isinstance(key, ProcessIdentity))

    def read(self, at: Floats) -> tuple[tuple[Band, ...], Floats]:
        """The bands from the ground up, and their bytes at the times `at`: [bands, m], NaN in gaps.

        The sum is never above the device's total, even where processes count the same buffer twice.
        """
        if self._sample is None:
            return (), np.full((0, len(at)), np.nan)
        leaders = self.leaders()
        named: tuple[BandKey, ...] = (
            BandRole.DRIVER, *leaders, BandRole.OWN, BandRole.SHARED, BandRole.UNKNOWN,
        )  # fmt: skip
        times, rows = self._series.window(self._start_s, named)
        others = (self._series.total(self._start_s) - rows.sum(axis=0)).clip(min=0)
        rows = np.insert(rows, 1, others, axis=0)
        keys = (BandRole.DRIVER, BandRole.OTHERS, *named[1:])
        names = self._distinct_names(keys)
        bands = tuple(Band(key, name, float(row[-1])) for key, name, row in zip(keys, names, rows, strict=True))
        sums = np.cumsum(rows, axis=0).clip(max=self._sample.total_bytes)
        within_total = np.diff(sums, axis=0, prepend=0)
        return bands, interpolate(times, within_total, at, GAP_S)

    def _distinct_names(self, keys: Sequence[BandKey]) -> list[str]:
        """The names of bands, with the PID where two have the same."""
        names = [self._name(key) for key in keys]
        return [
            f"{name} ({key.pid})" if isinstance(key, ProcessIdentity) and names.count(name) > 1 else name
            for key, name in zip(keys, names, strict=True)
        ]

    def _name(self, key: BandKey) -> str:
        return key.value if isinstance(key, BandRole) else self._names.get(key, f"PID {key.pid}")
