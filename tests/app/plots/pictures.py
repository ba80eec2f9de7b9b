"""What a plot's image looks like, for tests that look at pixels."""

import numpy as np
from PySide6.QtGui import QImage

from app.plots.live_plot import LivePlot


def channels_of(plot: LivePlot) -> np.ndarray:
    """Red, green, blue, alpha [rows, columns, 4]; alpha 0 is paper."""
    image = plot._image.convertToFormat(QImage.Format.Format_RGBA8888)
    rows = np.frombuffer(image.constBits(), dtype=np.uint8).reshape(image.height(), image.bytesPerLine())
    return rows[:, : 4 * image.width()].reshape(image.height(), image.width(), 4).copy()
