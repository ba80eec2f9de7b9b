"""In processes of their own: what is loaded once stays loaded."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch's libraries have other names")


def told_by(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_the_libraries_are_open_before_torch_is_imported() -> None:
    code = (
        "import sys; from engine.torch_libraries import open_torch_libraries\n"
        "names = [path.name for path in open_torch_libraries()]\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('libtorch.so' in names, 'libtorch_cpu.so' in maps, 'torch' in sys.modules)\n"
        "import torch; print(float(torch.ones(3).sum()), open_torch_libraries())"
    )
    assert told_by(code) == "True True False\n3.0 ()"


def test_other_threads_run_while_they_are_opened() -> None:
    """The longest time in which nobody else ran must be far below what opening them took."""
    code = (
        "import threading, time; from engine.torch_libraries import open_torch_libraries\n"
        "done, ticks = threading.Event(), []\n"
        "def work():\n"
        "    open_torch_libraries(); done.set()\n"
        "thread = threading.Thread(target=work); begun = time.perf_counter(); thread.start()\n"
        "while not done.is_set():\n"
        "    ticks.append(time.perf_counter()); time.sleep(0.0005)\n"
        "print(len(ticks))"
    )
    assert int(told_by(code)) > 10


def test_without_torch_nothing_is_opened() -> None:
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [sys.argv[0] or '.']\n"
        "from engine.torch_libraries import open_torch_libraries; print(open_torch_libraries())"
    )
    assert told_by(code) == "()"
