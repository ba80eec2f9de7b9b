"""How much memory came back since processes were asked to end. Compares samples; knows no signals."""

from collections.abc import Collection

from app.gpu.record import MemorySample, ProcessIdentity


class Recovery:
    """Measures one release against the sample that was taken before it.

    What returned is the growth of free memory plus what everybody else took meanwhile: other programs go on,
    and their growth says nothing about the ended ones. Memory that stays used without an owner has not returned,
    and neither has what a process took that was started again.
    """

    def __init__(self, before: MemorySample, ended: Collection[ProcessIdentity]) -> None:
        """Start from `before`; the processes in `ended` are those whose memory shall return."""
        self._ended = frozenset(ended)
        self._before = self._now = before
        self._others_before_bytes = self._others_now_bytes = _held_bytes(before, self._ended)

    @property
    def free_before_bytes(self) -> int:
        """Free memory of the device before the release."""
        return self._before.free_bytes

    @property
    def free_after_bytes(self) -> int:
        """Free memory of the device when it was last seen."""
        return self._now.free_bytes

    @property
    def returned_bytes(self) -> int:
        """What came back so far; never negative."""
        return max(self.free_after_bytes - self.free_before_bytes + self.taken_by_others_bytes, 0)

    @property
    def taken_by_others_bytes(self) -> int:
        """By how much the memory of all the other processes grew; negative when they gave some back."""
        return self._others_now_bytes - self._others_before_bytes

    def see(self, sample: MemorySample, *, started_again: Collection[ProcessIdentity] = ()) -> None:
        """Take in a new sample; `started_again` are successors of the ended ones."""
        self._now = sample
        self._others_now_bytes = _held_bytes(sample, self._ended | frozenset(started_again))


def _held_bytes(sample: MemorySample, but: Collection[ProcessIdentity]) -> int:
    return sum(process.memory_bytes or 0 for process in sample.processes if process.identity not in but)
