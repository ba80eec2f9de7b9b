"""Colours, spacing and the style sheet: one light and one dark set, following the system.

Owns every colour of the program. Widgets ask `Theme.colours` and listen to `Theme.changed`; none keeps a colour.
Data colours are Paul Tol's "bright" scheme (https://personal.sron.nl/~pault/), safe for colour-blind readers.
"""

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

import resources

DATA_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#ee8866", "#44bb99", "#bbbbbb")
OWN_COLOUR = "#66ccee"  # always our own process, never anything else
UNATTRIBUTED_COLOUR = "#999999"
PREFILL_COLOUR = "#ee8866"
DECODE_COLOUR = "#4477aa"

ICONS = Path(resources.__file__).with_name("icons")
SPACE_PX = 12
ROW_PX = 8
CARD_RADIUS_PX = 8
BUTTON_RADIUS_PX = 6


@dataclass(frozen=True, slots=True)
class Colours:
    """One set of surface and text colours, as #rrggbb."""

    background: str
    card: str
    line: str
    text: str
    secondary: str
    accent: str
    on_accent: str
    user_message: str
    code: str
    error: str
    empty_block: str
    cached_block: str
    pygments_style: str
    tick_image: str
    chevrons: str


LIGHT = Colours(
    background="#f6f7f9", card="#ffffff", line="#e3e6ea", text="#1d2129", secondary="#5f6774", accent="#2f6fde",
    on_accent="#ffffff", user_message="#e8f0fe", code="#f3f4f6", error="#b3261e", empty_block="#e3e6ea",
    cached_block="#8b93a0", pygments_style="friendly", tick_image="tick-light.png", chevrons="light",
)  # fmt: skip
DARK = Colours(
    background="#15181d", card="#1c2027", line="#2b313a", text="#e6e9ee", secondary="#98a1ae", accent="#5b93f5",
    on_accent="#0d1117", user_message="#24344f", code="#12151a", error="#ff8a80", empty_block="#2b313a",
    cached_block="#667080", pygments_style="github-dark", tick_image="tick-dark.png", chevrons="dark",
)  # fmt: skip


class Theme(QObject):
    """The colours in force. `choice` is "system", "light" or "dark"."""

    changed = Signal()

    def __init__(self, application: QApplication, choice: str = "system") -> None:
        super().__init__(application)
        self._application = application
        self._colours = LIGHT
        application.setStyle("Fusion")
        hints = QGuiApplication.styleHints()
        hints.colorSchemeChanged.connect(self._apply)
        self.set_choice(choice)

    @property
    def colours(self) -> Colours:
        """The set in force now."""
        return self._colours

    @property
    def is_dark(self) -> bool:
        """Whether the dark set is in force."""
        return self._colours is DARK

    def set_choice(self, choice: str) -> None:
        """Follow the system, or stay with one set."""
        schemes = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}
        self._forced = schemes.get(choice)
        if self._forced is None:
            QGuiApplication.styleHints().unsetColorScheme()
        else:
            QGuiApplication.styleHints().setColorScheme(self._forced)
        self._apply()

    def _apply(self) -> None:
        # Platforms without a system theme (offscreen) ignore setColorScheme, so an explicit choice decides by itself.
        scheme = self._forced or QGuiApplication.styleHints().colorScheme()
        self._colours = DARK if scheme == Qt.ColorScheme.Dark else LIGHT
        self._application.setPalette(palette(self._colours))
        self._application.setStyleSheet(style_sheet(self._colours))
        self.changed.emit()


def palette(colours: Colours) -> QPalette:
    """The Qt palette of a colour set."""
    result = QPalette()
    role = QPalette.ColorRole
    pairs = {
        role.Window: colours.background, role.WindowText: colours.text, role.Base: colours.card,
        role.AlternateBase: colours.background, role.Text: colours.text, role.Button: colours.card,
        role.ButtonText: colours.text, role.BrightText: colours.error, role.Highlight: colours.accent,
        role.HighlightedText: colours.on_accent, role.Link: colours.accent, role.ToolTipBase: colours.card,
        role.ToolTipText: colours.text, role.PlaceholderText: colours.secondary, role.Mid: colours.line,
        role.Dark: colours.line, role.Light: colours.card, role.Midlight: colours.line, role.Shadow: colours.line,
    }  # fmt: skip
    for name, value in pairs.items():
        result.setColor(name, QColor(value))
    for name in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, name, QColor(colours.secondary))
    return result


def style_sheet(colours: Colours) -> str:
    """The style sheet of a colour set. Object names: card, secondary, primary, userMessage, error."""
    c = colours
    chevron_up, chevron_down = (f"{ICONS.as_posix()}/chevron-{way}-{c.chevrons}.png" for way in ("up", "down"))
    return f"""
    QToolTip {{ background: {c.card}; color: {c.text}; border: 1px solid {c.line}; padding: 4px; }}
    QFrame#card {{ background: {c.card}; border: 1px solid {c.line}; border-radius: {CARD_RADIUS_PX}px; }}
    QLabel#secondary {{ color: {c.secondary}; }}
    QLabel#error {{ color: {c.error}; }}
    QFrame#userMessage {{ background: {c.user_message}; border-radius: {CARD_RADIUS_PX}px; }}
    QFrame#errorMessage {{ background: {c.card}; border: 1px solid {c.error}; border-radius: {CARD_RADIUS_PX}px; }}
    QPushButton, QToolButton {{
        background: {c.card}; color: {c.text}; border: 1px solid {c.line}; border-radius: {BUTTON_RADIUS_PX}px;
        padding: 5px 12px;
    }}
    QToolButton {{ padding: 3px 6px; }}
    QToolButton#quiet {{ background: transparent; color: {c.secondary}; border-color: transparent; }}
    QToolButton#quiet:hover, QToolButton#quiet:focus {{ color: {c.text}; border-color: {c.line}; }}
    QPushButton:hover, QToolButton:hover {{ border-color: {c.accent}; }}
    QPushButton:focus, QToolButton:focus {{ border-color: {c.accent}; }}
    QPushButton:pressed {{ background: {c.background}; }}
    QPushButton:disabled, QToolButton:disabled {{ color: {c.secondary}; }}
    QPushButton#primary {{ background: {c.accent}; color: {c.on_accent}; border: 1px solid {c.accent}; }}
    QPushButton#primary:disabled {{ background: {c.line}; color: {c.secondary}; border-color: {c.line}; }}
    QPushButton#danger {{ color: {c.error}; border-color: {c.error}; }}
    QLineEdit, QPlainTextEdit, QComboBox, QSpinBox, QDoubleSpinBox {{
        background: {c.card}; color: {c.text}; border: 1px solid {c.line}; border-radius: {BUTTON_RADIUS_PX}px;
        padding: 5px 8px; selection-background-color: {c.accent}; selection-color: {c.on_accent};
    }}
    QPlainTextEdit {{ border-radius: {CARD_RADIUS_PX}px; }}
    QLineEdit:focus, QPlainTextEdit:focus {{ border-color: {c.accent}; }}
    QComboBox:focus, QSpinBox:focus, QDoubleSpinBox:focus {{ border-color: {c.accent}; }}
    QComboBox:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled {{
        background: {c.background}; color: {c.secondary};
    }}
    QComboBox::drop-down {{ border: none; width: 24px; }}
    QComboBox::down-arrow, QSpinBox::down-arrow, QDoubleSpinBox::down-arrow {{
        image: url("{chevron_down}"); width: 10px; height: 10px;
    }}
    QSpinBox::up-arrow, QDoubleSpinBox::up-arrow {{ image: url("{chevron_up}"); width: 10px; height: 10px; }}
    QSpinBox::up-button, QDoubleSpinBox::up-button {{
        subcontrol-origin: border; subcontrol-position: top right; width: 24px; border: none; padding-top: 2px;
    }}
    QSpinBox::down-button, QDoubleSpinBox::down-button {{
        subcontrol-origin: border; subcontrol-position: bottom right; width: 24px; border: none; padding-bottom: 2px;
    }}
    QComboBox QAbstractItemView {{
        background: {c.card}; border: 1px solid {c.line}; selection-background-color: {c.user_message};
        selection-color: {c.text};
    }}
    QListView, QListWidget {{ background: transparent; border: none; outline: 0; }}
    QListView::item {{ padding: 6px 8px; border-radius: {BUTTON_RADIUS_PX}px; border: 1px solid transparent; }}
    QListView::item:hover {{ background: {c.line}; }}
    QListView::item:selected {{ background: {c.card}; color: {c.text}; border: 1px solid {c.line}; }}
    QTableView {{
        background: {c.card}; border: none; gridline-color: {c.line}; outline: 0;
        selection-background-color: {c.user_message}; selection-color: {c.text};
    }}
    QTableView::item {{ padding: 0 6px; }}
    QTableView::indicator {{
        width: 12px; height: 12px; background: {c.card}; border: 1px solid {c.secondary}; border-radius: 3px;
    }}
    QTableView::indicator:checked {{
        background: {c.accent}; border-color: {c.accent}; image: url("{ICONS.as_posix()}/{c.tick_image}");
    }}
    QHeaderView::down-arrow, QHeaderView::up-arrow {{ subcontrol-position: center left; width: 8px; height: 8px; }}
    QHeaderView {{ background: {c.card}; }}
    QHeaderView::section {{
        background: {c.card}; color: {c.secondary}; border: none; border-bottom: 1px solid {c.line}; padding: 4px 8px;
    }}
    QSplitter::handle {{ background: transparent; }}
    QSplitter::handle:hover {{ background: {c.line}; }}
    QTabBar::tab {{
        background: transparent; color: {c.secondary}; border: none; border-bottom: 2px solid transparent;
        padding: 5px 12px;
    }}
    QTabBar::tab:hover {{ color: {c.text}; }}
    QTabBar::tab:selected {{ color: {c.text}; border-bottom-color: {c.accent}; }}
    QScrollArea {{ background: transparent; border: none; }}
    QTextBrowser {{ background: transparent; border: none; }}
    QStatusBar {{ color: {c.secondary}; }}
    QStatusBar::item {{ border: none; }}
    QMenu {{ background: {c.card}; border: 1px solid {c.line}; padding: 4px; }}
    QMenu::item {{ padding: 5px 20px 5px 12px; border-radius: 4px; }}
    QMenu::item:selected {{ background: {c.user_message}; }}
    QProgressBar {{
        background: {c.line}; border: none; border-radius: 3px; max-height: 6px; text-align: center; color: transparent;
    }}
    QProgressBar::chunk {{ background: {c.accent}; border-radius: 3px; }}
    QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
    QScrollBar::handle:vertical {{ background: {c.line}; border-radius: 4px; min-height: 24px; margin: 1px; }}
    QScrollBar::handle:vertical:hover {{ background: {c.secondary}; }}
    QScrollBar::handle:vertical:disabled {{ background: transparent; }}
    QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
    QScrollBar::handle:horizontal {{ background: {c.line}; border-radius: 4px; min-width: 24px; margin: 1px; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    """
