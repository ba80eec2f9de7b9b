"""Fetches the starter model beside the window. Knows no widget."""

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event

from PySide6.QtCore import QObject, QThread, Signal

from engine.catalog.fetch import Cancelled, FetchCancelledError, FetchError, OnProgress
from engine.catalog.starter import fetch_starter
from engine.errors import EngineError

log = logging.getLogger(__name__)

Fetch = Callable[[Path, OnProgress, Cancelled], Path]


class StarterFetch(QThread):
    """One attempt to fetch. Exactly one of fetched and failed is emitted, or none when it was stopped.

    Args:
        cache_dir: where it is kept.
        fetch: what fetches; the tests bring their own.
    """

    progressed = Signal(object)  # FetchProgress
    fetched = Signal(str)  # path
    failed = Signal(str, str)  # sentence, details

    def __init__(self, cache_dir: Path, fetch: Fetch = fetch_starter, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("starter fetch")
        self._cache_dir = cache_dir
        self._fetch = fetch
        self._stop = Event()

    def stop(self) -> None:
        """Give it up; any thread, any number of times."""
        self._stop.set()

    def run(self) -> None:
        """Fetch."""
        try:
            path = self._fetch(self._cache_dir, self.progressed.emit, self._stop.is_set)
        except FetchCancelledError:
            log.info("fetching the starter was stopped")
        except EngineError as error:
            details = error.details if isinstance(error, FetchError) else ""
            log.warning("%s\n%s", error, details)
            self.failed.emit(str(error), details)
        except Exception as error:
            log.exception("fetching the starter failed")
            self.failed.emit(f"The starter model could not be downloaded: {error}.", repr(error))
        else:
            self.fetched.emit(str(path))
