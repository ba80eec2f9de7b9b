"""The fields of the settings, each with its name, its control and a plain explanation. They only hold values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtWidgets import QComboBox, QDoubleSpinBox, QPlainTextEdit, QSpinBox, QWidget

from app.settings import MAX_MIB, MAX_SLOTS, MAX_TOKENS, Settings

AUTOMATIC = "Automatic"
PROMPT_LINES = 5
TEXT_MARGIN_PX = 6  # the style sheet's padding does not reach the text of a spin box
MAX_SHOWN_THREADS = 9999


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting in a dialog.

    Attributes:
        name: the attribute of `Settings`.
        label, explanation: for the user.
        control: shows the value.
        read, show: the value of the control, and how to put one into it.
    """

    name: str
    label: str
    explanation: str
    control: QWidget
    read: Callable[[], Any]
    show: Callable[[Any], None]


def engine_fields(settings: Settings) -> tuple[SettingField, ...]:
    """What holds from the next load on."""
    devices = {"auto": AUTOMATIC, "cpu": "CPU", "cuda": "NVIDIA GPU"} | (
        {settings.device: settings.device} if settings.device not in {"auto", "cpu", "cuda"} else {}
    )
    dtypes = {"auto": AUTOMATIC, "bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}
    return (
        _choice("device", "Device", devices, "Where models run. Automatic takes an NVIDIA GPU, else the CPU."),
        _choice(
            "dtype", "Number format", dtypes,
            "Automatic takes bfloat16 where the processor multiplies it natively, else float32, which needs twice the "
            "memory.",
        ),
        _number(
            "threads", "CPU threads", 1, MAX_SHOWN_THREADS, automatic=True,
            explanation="Automatic takes the physical cores but one, which is left to this window.",
        ),
        _number(
            "max_num_seqs", "Slots", 1, MAX_SLOTS,
            explanation="Answers that are computed at once. Those beyond it wait for a free slot.",
        ),
        _number(
            "max_num_batched_tokens", "Token budget", 16, MAX_TOKENS, step=64, suffix=" tokens",
            explanation="Most tokens of one step. A larger budget reads long prompts faster, a smaller one lets the "
            "other answers flow more evenly meanwhile. Never below the slots.",
        ),
        _choice(
            "policy", "Steps prefer", {"mixed": "Both", "prefill-first": "Prompts"},
            "Both: answers go on while new prompts are read beside them. Prompts: new prompts are read first and the "
            "answers wait meanwhile, as many engines do it.",
        ),
        _number(
            "max_chunk_tokens", "Prompt chunk", 1, MAX_TOKENS, automatic=True, step=64, suffix=" tokens",
            explanation="Most tokens of one prompt in one step. Automatic takes what the budget has left.",
        ),
        _number(
            "max_model_len", "Context limit", 1, MAX_TOKENS, automatic=True, step=1024, suffix=" tokens",
            explanation="Longest conversation with its answer. Automatic takes what the model was made for.",
        ),
        _number(
            "kv_cache_mib", "KV cache", 1, MAX_MIB, automatic=True, step=256, suffix=" MiB",
            explanation="Memory for the keys and values of all conversations. Automatic takes a quarter of what is "
            "free on a CPU, and what is free beside the model on a GPU.",
        ),
    )  # fmt: skip


def answer_fields() -> tuple[SettingField, ...]:
    """What holds from the next prompt on."""
    return (
        _text(
            "system_prompt", "System prompt", "What each new chat begins with, unseen. Chats that exist keep their own."
        ),
        _decimal(
            "temperature", "Temperature", 0.0, 2.0, 0.1,
            "0 always takes the most likely token. Higher values vary more, above 1 often wildly.",
        ),
        _decimal(
            "top_p", "Top-p", 0.01, 1.0, 0.05,
            "Draws from the likeliest tokens that together reach this probability. 1 draws from all.",
        ),
        _number(
            "max_tokens", "Longest answer", 1, MAX_TOKENS, automatic=True, nothing="No limit", step=128,
            suffix=" tokens",
            explanation="An answer that reaches it is cut there. Without a limit it may fill the context.",
        ),
    )  # fmt: skip


def _choice(name: str, label: str, choices: dict[str, str], explanation: str) -> SettingField:
    control = QComboBox()
    for value, text in choices.items():
        control.addItem(text, value)

    def show(value: str) -> None:
        control.setCurrentIndex(max(control.findData(value), 0))

    return SettingField(name, label, explanation, control, control.currentData, show)


def _number(
    name: str,
    label: str,
    low: int,
    high: int,
    *,
    explanation: str,
    automatic: bool = False,
    nothing: str = AUTOMATIC,
    step: int = 1,
    suffix: str = "",
) -> SettingField:
    """With `automatic`, one below the lowest number stands for None and is called `nothing`."""
    control = QSpinBox(singleStep=step, suffix=suffix)
    control.setGroupSeparatorShown(True)
    control.lineEdit().setTextMargins(TEXT_MARGIN_PX, 0, 0, 0)
    control.setRange(low - automatic, high)
    if automatic:
        control.setSpecialValueText(nothing)

    def read() -> int | None:
        return None if automatic and control.value() == control.minimum() else control.value()

    def show(value: int | None) -> None:
        control.setValue(control.minimum() if value is None else value)

    return SettingField(name, label, explanation, control, read, show)


def _decimal(name: str, label: str, low: float, high: float, step: float, explanation: str) -> SettingField:
    control = QDoubleSpinBox(decimals=2, singleStep=step, minimum=low, maximum=high)
    control.lineEdit().setTextMargins(TEXT_MARGIN_PX, 0, 0, 0)
    return SettingField(name, label, explanation, control, lambda: round(control.value(), 2), control.setValue)


def _text(name: str, label: str, explanation: str) -> SettingField:
    control = QPlainTextEdit()
    control.setTabChangesFocus(True)
    control.setFixedHeight(PROMPT_LINES * control.fontMetrics().lineSpacing() + 22)
    return SettingField(name, label, explanation, control, control.toPlainText, control.setPlainText)
