"""The dialog of the settings. It shows values and gives back what was chosen; it saves and loads nothing."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from app.settings import Settings
from app.settings_fields import SettingField, answer_fields, engine_fields
from app.theme import SPACE_PX

WIDTH_PX = 760
CONTROL_PX = 170
AT_LOAD = "These take effect when a model is loaded."
STOPS = " Loading again stops the answers that are being written."


class SettingsDialog(QDialog):
    """Two pages of settings.

    Args:
        settings: what is shown.
        given: names that the command line has decided: shown with its values, not to be changed.
        in_force: the settings with those values.
        can_load: whether there is a model to load again.
        is_busy: whether answers are being written.

    Signals:
        saved: the Settings that were chosen.
        load_asked: after `saved`, when the model is to be loaded again.
    """

    saved = Signal(object)
    load_asked = Signal()

    def __init__(
        self,
        settings: Settings,
        *,
        given: Collection[str] = (),
        in_force: Settings | None = None,
        can_load: bool = False,
        is_busy: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Settings")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setFixedWidth(WIDTH_PX)
        self._settings = settings
        self._given = frozenset(given)
        engine, answers = engine_fields(in_force or settings), answer_fields()
        self._fields = {field.name: field for field in (*engine, *answers)}
        self.pages = QTabWidget(documentMode=True)
        self.pages.addTab(self._page(engine, AT_LOAD + (STOPS if is_busy and can_load else "")), "Engine")
        self.pages.addTab(self._page(answers, "These take effect with the next prompt."), "Answers")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, SPACE_PX, SPACE_PX, SPACE_PX)
        layout.setSpacing(SPACE_PX)
        layout.addWidget(self.pages, 1)
        layout.addLayout(self._buttons(can_load=can_load))
        self._keep_budget_above_slots()
        self._show(in_force or settings)

    @property
    def chosen(self) -> Settings:
        """What stands in the fields; what the command line has decided stays as it was."""
        values = {name: field.read() for name, field in self._fields.items() if name not in self._given}
        return replace(self._settings, **values)

    def _page(self, fields: Sequence[SettingField], note: str) -> QWidget:
        page = QWidget()
        grid = QGridLayout(page)
        grid.setContentsMargins(2, SPACE_PX, 2, 0)
        grid.setHorizontalSpacing(SPACE_PX)
        grid.setVerticalSpacing(SPACE_PX)
        grid.setColumnStretch(2, 1)
        row = 0
        for field in fields:
            row += self._add(grid, row, field)
        grid.addWidget(QLabel(note, wordWrap=True), row, 0, 1, 3)
        grid.setRowStretch(row + 1, 1)
        # A tab widget does not ask how tall wrapped text is.
        page.setMinimumHeight(grid.heightForWidth(WIDTH_PX - 2 * SPACE_PX))
        return page

    def _add(self, grid: QGridLayout, row: int, field: SettingField) -> int:
        """Returns how many rows it takes."""
        label = QLabel(field.label)
        label.setBuddy(field.control)
        explanation = QLabel(field.explanation, wordWrap=True)
        explanation.setObjectName("secondary")
        is_given = field.name in self._given
        if is_given:
            explanation.setText(f"Decided by the command line for this run (--{field.name}).")
        field.control.setEnabled(not is_given)
        field.control.setAccessibleName(field.label)
        field.control.setAccessibleDescription(field.explanation)
        field.control.setToolTip(field.explanation)
        if isinstance(field.control, QPlainTextEdit):
            grid.addWidget(label, row, 0)
            grid.addWidget(explanation, row, 1, 1, 2)
            grid.addWidget(field.control, row + 1, 0, 1, 3)
            return 2
        field.control.setFixedWidth(CONTROL_PX)
        for column, widget in enumerate((label, field.control, explanation)):
            grid.addWidget(widget, row, column)
        return 1

    def _buttons(self, *, can_load: bool) -> QHBoxLayout:
        defaults = _button("Defaults", "Put the defaults into both pages; nothing is saved yet", self._show_defaults)
        cancel = _button("Cancel", "Keep things as they are (Esc)", self.reject)
        save = _button("Save", "Save; the engine's settings wait for the next load (Enter)", self._save)
        save.setDefault(True)
        again = _button(
            "Save and load again", "Save, and load the model again with these settings", self._save_and_load
        )
        again.setVisible(can_load)
        (again if can_load else save).setObjectName("primary")
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(defaults)
        row.addStretch(1)
        for button in (cancel, save, again):
            row.addWidget(button)
        return row

    def _keep_budget_above_slots(self) -> None:
        slots, budget = (self._fields[name].control for name in ("max_num_seqs", "max_num_batched_tokens"))
        assert isinstance(slots, QSpinBox)
        assert isinstance(budget, QSpinBox)
        lowest = budget.minimum()
        slots.valueChanged.connect(lambda value: budget.setMinimum(max(value, lowest)))

    def _show(self, settings: Settings) -> None:
        for name, field in self._fields.items():
            field.show(getattr(settings, name))

    @Slot()
    def _show_defaults(self) -> None:
        defaults = Settings()
        for name, field in self._fields.items():
            if name not in self._given:
                field.show(getattr(defaults, name))

    @Slot()
    def _save(self) -> None:
        self.saved.emit(self.chosen)
        self.accept()

    @Slot()
    def _save_and_load(self) -> None:
        self._save()
        self.load_asked.emit()


def _button(text: str, tooltip: str, slot: object) -> QPushButton:
    button = QPushButton(text, autoDefault=False)
    button.setToolTip(tooltip)
    button.setAccessibleName(text)
    button.clicked.connect(slot)
    return button
