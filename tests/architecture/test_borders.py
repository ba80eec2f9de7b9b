"""Who may import whom is a test, not a habit."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["importlinter.cli", "lint-imports"], id="imports"),
        pytest.param(["ruff", "check", "."], id="ruff"),
        pytest.param(["ruff", "format", "--check", "."], id="format"),
        pytest.param(["mypy"], id="mypy"),
    ],
)
def test_static_check_is_clean(command: list[str]) -> None:
    arguments = [sys.executable, "-m", *command]
    if command[0] == "importlinter.cli":
        arguments = [str(Path(sys.executable).parent / "lint-imports")]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("app.main", ["torch", "transformers", "PySide6"]),
        ("app.window", ["torch", "transformers"]),
        ("engine", ["torch", "transformers", "PySide6"]),
        ("engine.cli", ["torch", "transformers", "PySide6"]),
    ],
)
def test_import_stays_light(module: str, forbidden: list[str]) -> None:
    code = f"import sys, {module}; print([name for name in {forbidden!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
