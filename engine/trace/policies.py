"""What other ways of batching would have cost, in steps, for the same answer lengths."""


def static_steps(lengths: list[int], slots: int) -> int:
    """Steps of request-level batching: groups of `slots` requests, each as long as its longest answer.

    An answer of n tokens occupies n steps; the prefill's step computes its first token.
    """
    groups = (lengths[first : first + slots] for first in range(0, len(lengths), slots))
    return sum(max(group) for group in groups)


def continuous_steps(lengths: list[int], slots: int) -> int:
    """Steps of iteration-level batching: a freed slot is taken in the next step (Orca, OSDI 2022)."""
    ends = [0] * slots
    for length in lengths:
        first_free = min(range(slots), key=ends.__getitem__)
        ends[first_free] += length
    return max(ends)
