"""python -m tests.equality: the table of families and scenarios; exit code 0 when nothing differs, else 1."""

import argparse
import contextlib
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from tests.equality.families import FAMILIES
from tests.equality.faults import FAULTS
from tests.equality.scenarios import QUICK, WHOLE
from tests.equality.table import heading, line, rows


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each family; the result is the exit code."""
    options = _parse(arguments)
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    size = QUICK if options.quick else WHOLE
    fault = FAULTS[options.fault] if options.fault else contextlib.nullcontext
    print(heading())
    good = True
    with tempfile.TemporaryDirectory() as folder, fault():
        for row in rows(options.family or FAMILIES, size, Path(folder)):
            print(line(row), flush=True)
            good &= row.is_good
    print("Nothing differs." if good else "There are differences.")
    return 0 if good else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.equality", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter texts")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one; may be repeated")
    parser.add_argument("--fault", choices=list(FAULTS), help="put a fault into the engine: then it must fail")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
