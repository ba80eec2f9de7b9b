"""Settings and fixtures that every test shares."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from app.paths import user_paths
from engine.catalog.starter import fetch_starter, starter_path
from engine.errors import EngineError
from tests.reports import ReportsPlugin

# No assertion on seconds: on a busy machine the same example takes a hundred times longer than before.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")

pytest_plugins = ["pytester"]  # for the tests of ReportsPlugin

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ReportsPlugin(config))


@pytest.fixture(scope="session")
def starter_gguf() -> Path:
    """The starter model: KVSCOPE_STARTER names the file, else the user's cache has it, else it is fetched there."""
    named = os.environ.get("KVSCOPE_STARTER")
    if named:
        return Path(named)
    cache = user_paths().cache
    try:
        return starter_path(cache) or fetch_starter(cache, lambda _progress: None, lambda: False)
    except EngineError as error:
        pytest.fail(str(error))
