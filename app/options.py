"""The command line of the window. No Qt; the subcommands' own options are theirs."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from engine.errors import UsageError

COMMANDS = {
    "chat": "answer a prompt in the terminal",
    "demo": "show what batching does",
    "bench": "measure the engine",
    "plan": "how the memory would be shared out",
    "ps": "which processes hold the memory",
    "free": "end processes that hold it",
    "models": "list and fetch models",
}
THEMES = ("system", "light", "dark")
DTYPES = ("auto", "bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions:
    """What the window was asked to do.

    Attributes:
        model: a path or a name; empty for the last model or the starter.
        scenario: work to show by itself; empty for none.
        screenshot: draw the window to this file, then exit.
        data_dir: keep everything but the cache there instead of the usual folders.
        theme: for this run only; empty for the setting.
        device, dtype, threads: for the engine, for this run only; empty and None for the setting.
    """

    model: str = ""
    scenario: str = ""
    screenshot: Path | None = None
    data_dir: Path | None = None
    theme: str = ""
    device: str = ""
    dtype: str = ""
    threads: int | None = None

    @property
    def engine_settings(self) -> dict[str, str | int]:
        """The settings of the engine that were given, by their names."""
        given = {"device": self.device, "dtype": self.dtype, "threads": self.threads}
        return {name: value for name, value in given.items() if value}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[0].upper()}{message[1:]}. `kvscope --help` shows what can be given.")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_others: object) -> NoReturn:
        # Reading the installed metadata takes longer than all the other options together.
        from app.version import version_of

        parser.exit(message=f"kvscope {version_of('kvscope')}\n")


def parse_window_options(arguments: Sequence[str]) -> WindowOptions:
    """Understand the options of the window.

    Raises:
        UsageError: an unknown option or command, or a file that cannot be written.
        SystemExit: after --help or --version.
    """
    unknown = next((word for word in arguments if not word.startswith("-")), None)
    if unknown is not None and unknown == arguments[0]:
        commands = ", ".join(COMMANDS)
        raise UsageError(f"There is no command {unknown!r}; there are {commands}, or no command for the window.")
    found = _parser().parse_args(arguments)
    options = WindowOptions(
        model=found.model or "", scenario=found.scenario or "", screenshot=found.screenshot, data_dir=found.data_dir,
        theme=found.theme, device=found.device or "", dtype=found.dtype, threads=found.threads,
    )  # fmt: skip
    if options.screenshot is not None:
        _check_picture(options.screenshot)
    if options.data_dir is not None:
        _check_folder(options.data_dir)
    return options


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {name:<{width}}{what}" for name, what in COMMANDS.items())
    parser = _Parser(
        prog="kvscope",
        description="A chat beside live graphs of the engine that answers it. Without a command, the window opens.",
        epilog=f"commands (each has its own --help):\n{commands}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-m", "--model", type=_text, help="a GGUF file, a model folder, or a name")
    add("--scenario", metavar="NAME", type=_text, help="work to show by itself: chat, slots or seed")
    add("--screenshot", metavar="FILE", type=_path, help="draw the window to a PNG file, then exit")
    add("--data-dir", metavar="DIR", type=_path, help="keep conversations and settings there")
    add("--theme", choices=THEMES, default="", help="colours of this run")
    add("--device", type=_device, help="where this run computes: auto, cpu, cuda or cuda:N")
    add("--dtype", choices=DTYPES, default="", help="number format of this run")
    add("--threads", metavar="N", type=_threads, help="CPU threads of this run; all physical cores but one by default")
    parser.add_argument("--version", action=_Version, nargs=0, help="tell the version and exit")
    return parser


def _text(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("its text is empty; write one, or leave the option out")
    return text


def _path(text: str) -> Path:
    return Path(_text(text))


def _device(text: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is unknown; use auto, cpu, cuda or cuda:N")
    return text


def _threads(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of threads; give one from 1 to 9999")
    return int(text)


def _check_picture(path: Path) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"The screenshot cannot be written: there is no folder {folder}. Make it, or name another file."
        )
    if path.is_dir():
        raise UsageError(f"The screenshot cannot be written: {path} is a folder. Name a file in it.")
    if path.suffix.lower() != ".png":
        raise UsageError(f"The screenshot is a PNG file, but {path.name} does not end in .png. Name it so.")


def _check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise UsageError(f"The data folder {path} is a file. Name a folder; it is made if it is missing.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The data folder {path} cannot be made ({error.strerror}). Name another one.") from error
