"""How models and downloads are told to people. Pure text, no Qt."""

from engine.catalog.fetch import FetchProgress
from engine.events import ModelInfo

MIN_ELAPSED_S = 1.0  # before that the speed is a guess


def megabytes(size_bytes: int) -> str:
    """A file's size as its makers write it: decimal megabytes, or gigabytes from 1 GB on."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"


def describe_fetch(progress: FetchProgress, elapsed_s: float) -> str:
    """Like "41 of 93 MB, 12 s left". `elapsed_s` counts from the first byte of this stage."""
    if not progress.total_bytes:
        return f"{progress.done_bytes / 1e6:.0f} MB" if progress.done_bytes else ""
    text = f"{progress.done_bytes / 1e6:.0f} of {progress.total_bytes / 1e6:.0f} MB"
    if elapsed_s < MIN_ELAPSED_S or not 0 < progress.done_bytes < progress.total_bytes:
        return text
    left_s = elapsed_s * (progress.total_bytes - progress.done_bytes) / progress.done_bytes
    return f"{text}, {_duration(left_s)} left"


def describe_model(info: ModelInfo) -> str:
    """The secondary line beside the model's name."""
    return f"{info.dtype} · {info.device} · {info.attention}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
