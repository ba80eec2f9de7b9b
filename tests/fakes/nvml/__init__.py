"""A stand-in for the NVIDIA driver's library, so that the real binding can be tested without a card."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(folder: Path) -> Path:
    """Compile the library into `folder`; put that into LD_LIBRARY_PATH. Needs gcc."""
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library
