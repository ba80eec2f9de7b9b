"""The last row of a dialog that only shows something."""

from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QWidget


def close_row(dialog: QDialog, *others: QWidget) -> QHBoxLayout:
    """`others`, then a button that closes `dialog`, all on the right."""
    close = QPushButton("Close")
    close.setDefault(True)
    close.setToolTip("Close (Esc)")
    close.setAccessibleName("Close")
    close.clicked.connect(dialog.reject)
    row = QHBoxLayout()
    row.setSpacing(8)
    row.addStretch(1)
    for widget in (*others, close):
        row.addWidget(widget)
    return row
