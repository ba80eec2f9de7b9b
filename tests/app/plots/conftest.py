"""What drawing tests share."""

from collections.abc import Iterator

import pytest
import shiboken6
from PySide6.QtWidgets import QApplication

from app.theme import Theme


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    theme = Theme(qapp, "light")
    yield theme
    shiboken6.delete(theme)
    qapp.setStyleSheet("")
