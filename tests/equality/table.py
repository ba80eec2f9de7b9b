"""Every family through every scenario, and the table of what was compared."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.equality.families import Checkpoint, build
from tests.equality.judge import TOLERANCES, Judge, Verdict
from tests.equality.scenarios import QUICK, SCENARIOS, Size, Stage, play

NAME_WIDTH = 14


@dataclass(frozen=True)
class Row:
    """One family: a verdict for each scenario, and sentences on what else went wrong."""

    family: str
    verdicts: Mapping[str, Verdict]
    problems: tuple[str, ...] = field(default=())

    @property
    def total(self) -> Verdict:
        return sum(self.verdicts.values(), Verdict())

    @property
    def is_good(self) -> bool:
        compared = all(verdict.positions for verdict in self.verdicts.values())
        return compared and not self.total.mismatches and not self.problems


def check_family(checkpoint: Checkpoint, size: Size, scenarios: Iterable[str] = tuple(SCENARIOS)) -> Row:
    """Play the scenarios on one checkpoint."""
    tolerance = TOLERANCES[checkpoint.family.dtype]
    judge = Judge(checkpoint.reference, tolerance=tolerance, whole_texts=size is QUICK)
    name = checkpoint.folder.name
    verdicts, problems = {}, []
    for scenario in scenarios:
        verdicts[scenario] = Verdict()
        for seed in size.seeds:
            try:
                session, problem = play(scenario, Stage(checkpoint, size, seed))
                verdicts[scenario] += judge.check(session)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                problems.append(f"{name}, {scenario}, seed {seed}: {problem}")
    return Row(name, verdicts, tuple(problems))


def rows(families: Iterable[str], size: Size, folder: Path) -> Iterator[Row]:
    """One family after another."""
    for name in families:
        yield check_family(build(name, folder), size)


def heading() -> str:
    cells = "".join(f"{scenario:>18}" for scenario in SCENARIOS)
    return f"{'positions / mismatches':<{NAME_WIDTH}}\n{'family':<{NAME_WIDTH}}{cells}{'worst logit':>14}"


def line(row: Row) -> str:
    texts = [f"{verdict.positions} / {verdict.mismatches}" for verdict in row.verdicts.values()]
    cells = "".join(f"{text:>18}" for text in texts)
    return "\n".join([f"{row.family:<{NAME_WIDTH}}{cells}{row.total.worst:>14.1e}", *row.problems])
