"""A tiny model, and commands as somebody types them: a process of their own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.tiny_model import chat_gguf, tiny_chat_model


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@dataclass(frozen=True)
class Terminal:
    """Runs commands with folders of their own: no model is known here but those that are given."""

    home: Path

    @property
    def environment(self) -> dict[str, str]:
        folders = {name: str(self.home / name.lower()) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME")}
        return {**os.environ, **folders}

    def types(
        self, *arguments: str | Path, stdin: str | None = None, module: str = "app.main"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            env=self.environment, input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "home")


def assert_one_sentence(text: str) -> None:
    assert text.endswith(".\n"), text
    assert text.count("\n") == 1
    assert "Traceback" not in text
