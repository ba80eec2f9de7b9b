from pathlib import Path

import pytest

from engine.model_names import display_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("hub/models--org--Model-1B/snapshots/0123abc", "org/Model-1B"),
        ("hub/models--org--Mid--dle/snapshots/0123abc", "org/Mid--dle"),
        ("hub/models--alone/snapshots/0123abc", "alone"),
        ("models/snapshots/mine", "mine"),
        ("models--org--Model/files/mine", "mine"),
        ("models/tiny.Q4_1.gguf", "tiny.Q4_1.gguf"),
    ],
)
def test_names(path: str, name: str) -> None:
    assert display_name(Path("/home/me") / path) == name


def test_the_present_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "models--org--Model" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    monkeypatch.chdir(snapshot)
    assert display_name(Path()) == "org/Model"
