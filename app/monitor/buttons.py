"""One way to name a button for the mouse, the keyboard and a screen reader."""

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QAbstractButton


def describe_button(button: QAbstractButton, what: str, shortcut: str = "") -> None:
    """Say what the button does in its tooltip and accessible name; `shortcut` is a key sequence that presses it."""
    if shortcut:
        keys = QKeySequence(shortcut)
        button.setShortcut(keys)
        what_and_keys = f"{what}  {keys.toString(QKeySequence.SequenceFormat.NativeText)}"
    button.setToolTip(what_and_keys if shortcut else what)
    button.setAccessibleName(button.text() or what)
    button.setAccessibleDescription(what)
