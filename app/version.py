"""Which version this is, also where the program runs from its source folder without being installed."""

from importlib.metadata import PackageNotFoundError, version


def version_of(distribution: str) -> str:
    """The installed version of a distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(not installed)"
