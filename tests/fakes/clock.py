"""A clock that goes only when it is told to."""


class FakeClock:
    """Call it for the seconds; `advance` lets time pass."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
