"""`kvscope models`: what is on this machine, and fetching."""

import json
import shutil
from pathlib import Path

import pytest

from app import cli
from engine.cli import models
from engine.cli.models import get_model, list_models
from engine.errors import EngineError
from tests.engine.cli.conftest import Terminal, assert_one_sentence


def test_list_as_json(terminal: Terminal, tiny_gguf: Path) -> None:
    folder = terminal.home / "xdg_data_home" / "kvscope" / "models"
    folder.mkdir(parents=True)
    path = Path(shutil.copy(tiny_gguf, folder / "mine.gguf"))
    done = terminal.types("models", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (model,) = json.loads(done.stdout)
    assert model["path"] == str(path)
    assert model["size_bytes"] == path.stat().st_size
    assert model.keys() == {"name", "path", "source", "size_bytes"}


def test_a_listed_name_can_be_given_as_the_model(terminal: Terminal, tiny_gguf: Path) -> None:
    folder = terminal.home / "xdg_data_home" / "kvscope" / "models"
    folder.mkdir(parents=True)
    shutil.copy(tiny_gguf, folder / "mine.gguf")
    (model,) = json.loads(terminal.types("models", "list", "--json").stdout)
    assert terminal.types("plan", "-m", model["name"], "--json").returncode == 0


def test_an_empty_machine_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(models, "find_models", lambda _folders: ())
    assert list_models(as_json=False) == 0
    assert "kvscope models get starter" in capsys.readouterr().out
    assert list_models(as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_was_fetched_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(models, "fetch_model", lambda _name, _folders, _progress, _cancelled: tmp_path / "m.gguf")
    assert get_model("starter") == 0
    assert capsys.readouterr().out == f"starter is at {tmp_path / 'm.gguf'}.\n"


def test_a_failed_fetch_exits_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_arguments: object) -> Path:
        raise EngineError("The network is away. Try again later.")

    monkeypatch.setattr(models, "fetch_model", fail)
    assert cli.run(["models", "get", "starter"]) == 1
    said = capsys.readouterr()
    assert_one_sentence(said.err)
    assert said.out == ""
