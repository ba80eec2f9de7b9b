"""Where the program keeps things. One value, made once, handed to whoever stores something."""

from dataclasses import dataclass
from pathlib import Path

from platformdirs import PlatformDirs


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders of this user.

    Attributes:
        data: conversations and the release journal.
        config: settings.
        state: logs.
        cache: the starter model and other things that can be fetched again.
    """

    data: Path
    config: Path
    state: Path
    cache: Path

    @property
    def database(self) -> Path:
        """The conversations."""
        return self.data / "conversations.sqlite3"

    @property
    def load_record(self) -> Path:
        """What became of the last load of a model."""
        return self.data / "last-load.json"

    @property
    def settings_file(self) -> Path:
        """The settings."""
        return self.config / "settings.json"

    @property
    def log_file(self) -> Path:
        """The current log."""
        return self.state / "kvscope.log"


def user_paths(data_dir: Path | None = None) -> Paths:
    """The platform's usual folders; with `data_dir`, everything but the cache lies below it."""
    dirs = PlatformDirs("kvscope", appauthor=False, roaming=False)
    cache = Path(dirs.user_cache_dir)
    if data_dir is not None:
        return Paths(data=data_dir, config=data_dir, state=data_dir, cache=cache)
    return Paths(
        data=Path(dirs.user_data_dir), config=Path(dirs.user_config_dir), state=Path(dirs.user_state_dir), cache=cache
    )
