"""What stands where no message is yet: which model answers, what this is, and a few prompts to begin with."""

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from engine.events import EngineState, EngineStatus, ModelInfo

PROMPTS = (
    "Why does paged attention save memory?",
    "Reverse the words of a text in Python.",
    "Five ideas for a rainy Sunday, please.",
)
EXPLANATION = (
    "The model runs on this computer, in a paged-attention engine of this program. While it answers, the graphs beside "
    "show the memory it takes, the KV blocks it fills and the steps it computes."
)
MAX_WIDTH_PX = 440
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def model_line(info: ModelInfo) -> str:
    """How a model runs: "bf16 · CPU, 2 threads · gather + SDPA, block 16"."""
    dtype = DTYPES.get(info.dtype, info.dtype)
    return f"{dtype} · {info.device} · {info.attention}, block {info.block_size_tokens}"


class EmptyChat(QWidget):
    """Signals: prompt_chosen carries a sample prompt."""

    prompt_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = QLabel()
        font = self._name.font()
        font.setBold(True)
        font.setPointSizeF(11)
        self._name.setFont(font)
        self._line = QLabel()
        self._line.setObjectName("secondary")
        self._text = QLabel(EXPLANATION)
        for label in (self._name, self._line, self._text):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            label.setWordWrap(True)
        self._lay_out()

    def _lay_out(self) -> None:
        inner = QWidget()
        inner.setMaximumWidth(MAX_WIDTH_PX)
        inner.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        for label in (self._name, self._line, self._text):
            column.addWidget(label)
        column.addSpacing(8)
        for prompt in PROMPTS:
            column.addWidget(self._sample(prompt))
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(inner, 100)
        row.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addStretch(2)
        outer.addLayout(row)
        outer.addStretch(3)

    def _sample(self, prompt: str) -> QPushButton:
        button = QPushButton(prompt)
        button.setAccessibleName(f"Ask: {prompt}")
        button.setToolTip("Send this prompt")
        button.setMinimumWidth(40)  # a narrow pane must stay possible
        button.clicked.connect(self._on_clicked)
        return button

    @Slot(object)
    def show_status(self, status: EngineStatus) -> None:
        """Say which model answers."""
        match status.state:
            case EngineState.READY if status.info is not None:
                self._name.setText(status.info.name)
                self._line.setText(model_line(status.info))
            case EngineState.LOADING:
                self._name.setText("The model is loading")
                self._line.setText("You can write already: it is sent when the model is ready.")
            case EngineState.FAILED:
                self._name.setText("The model is not running")
                self._line.setText(status.message)
            case _:
                self._name.setText("No model yet")
                self._line.setText("You can write already: it is sent when a model is ready.")

    @Slot()
    def _on_clicked(self) -> None:
        sender = self.sender()
        assert isinstance(sender, QPushButton)
        self.prompt_chosen.emit(sender.text())
