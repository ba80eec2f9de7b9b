"""A whole KVScope with a scripted engine that goes into a state and says so: ending_program.py STATE DATA_DIR.

The state "release" reads from standard input which process it shall ask to exit.
"""

import sys
import threading
from pathlib import Path

from PySide6.QtCore import QTimer

from app.desktop import Desktop
from app.gpu.record import MemorySample, ReleaseReport
from app.opening import prepare
from app.options import WindowOptions
from engine.catalog.fetch import Cancelled, FetchCancelledError, FetchProgress, OnProgress
from engine.events import EngineState
from engine.requests import Request
from tests.fakes.engine import Script
from tests.fakes.model_file import EMPTY_GGUF


def endless_fetch(_cache: Path, on_progress: OnProgress, cancelled: Cancelled) -> Path:
    on_progress(FetchProgress("Downloading", 1, 100))
    pause = threading.Event()
    while not cancelled():
        pause.wait(0.01)
    raise FetchCancelledError


def main(state: str, data_dir: Path) -> int:
    model = data_dir / "model.gguf"
    model.write_bytes(EMPTY_GGUF)
    script = Script(answer=lambda _request: ("word ",) * 10_000_000, pause_s=0.002)
    if state in {"loading", "stuck"}:
        script.load_gate = threading.Event()
    if state == "stuck":  # answers to nothing: the deadline has to end it
        script.load_gate.wait = lambda _timeout=None: threading.Event().wait(3600)  # type: ignore[method-assign]
    with_model = state not in {"downloading", "empty"}
    if state == "empty":
        (data_dir / "settings.json").write_text('{"fetch_starter": false}')
    options = WindowOptions(data_dir=data_dir, model=str(model) if with_model else "")
    opening = prepare(options)
    assert opening is not None
    desktop = Desktop(opening, load_engine=script.factory, fetch=endless_fetch)
    client = desktop.client
    reached = {
        "empty": lambda: True,
        "idle": lambda: client.status.state is EngineState.READY,
        "loading": lambda: client.status.state is EngineState.LOADING,
        "stuck": lambda: client.status.state is EngineState.LOADING,
        "generating": lambda: bool(client.open_requests) and texts,
        "downloading": lambda: desktop.models.is_running,
        "dialog": lambda: client.status.state is EngineState.READY,
        "release": lambda: releasing,
    }
    releasing: list[ReleaseReport] = []
    texts: list[str] = []
    told: list[str] = []
    client.text_arrived.connect(lambda _id, text, _tokens: texts.append(text))

    def look() -> None:
        ready = client.status.state is EngineState.READY
        if state == "generating" and ready and not client.open_requests and not told:
            client.submit(Request(request_id="a", text="go on"))
        if state == "release" and desktop.side.sampler is not None and not hasattr(look, "victim"):
            look.victim = int(sys.stdin.readline())  # type: ignore[attr-defined]
            desktop.side.sampler.sampled.connect(release)
            desktop.side.sampler.release_progressed.connect(releasing.append)
        if reached[state]() and not told:
            if state == "dialog":
                desktop.models.open_picker()
                desktop.window.show_keys()
            told.append(state)
            print("reached", flush=True)

    def release(sample: MemorySample) -> None:
        sampler = desktop.side.sampler
        found = [p.identity for p in sample.processes if p.identity.pid == look.victim]  # type: ignore[attr-defined]
        if found and sampler is not None and not releasing:
            sampler.start_release(tuple(found))

    def obey() -> None:
        for line in sys.stdin:
            if line.strip() == "close":
                QTimer.singleShot(0, desktop.window, desktop.window.close)

    if state != "release":
        threading.Thread(target=obey, daemon=True).start()
    timer = QTimer(desktop, interval=10)
    timer.timeout.connect(look)
    desktop.window.painted.connect(timer.start)
    opening.instance.raise_asked.connect(lambda: print("raised", flush=True))
    return desktop.execute()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
