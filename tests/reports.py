"""tests/reports.toml as values, and a pytest plugin that holds a full run to it. Knows no engine."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".toml")
UNUSUAL_OPTIONS = ("keyword", "lf", "failedfirst", "collectonly", "deselect", "ignore", "ignore_glob", "stepwise")


@dataclass(frozen=True)
class Report:
    """A public report: where it was made, what went wrong, and the tests of ours or the reason why there are none.

    `on_gpu` are tests that need a card; a run without one does not ask for them.
    """

    number: int
    references: tuple[str, ...]
    fault: str
    tests: tuple[str, ...] = ()
    on_gpu: tuple[str, ...] = ()
    reason: str = ""


def read_reports(path: Path = FILE) -> list[Report]:
    """The file's reports in its order."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Report(
            number=int(number),
            references=tuple(table.pop("references")),
            fault=table.pop("fault"),
            tests=tuple(table.pop("tests", ())),
            on_gpu=tuple(table.pop("on_gpu", ())),
            **table,
        )
        for number, table in tables.items()
    ]


def named_tests(reports: Iterable[Report]) -> list[str]:
    """Every test that a report names, once."""
    return list(dict.fromkeys(test for report in reports for test in report.tests))


def unproven(named: Iterable[str], outcomes: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each named test that a full session has not shown to pass.

    Args:
        named: node ids; a function or class stands for all that is in it. A part may be long, and so left out.
        outcomes: "passed", "failed", "skipped", "deselected" or "not run" by node id.
    """
    for name in named:
        meant = {each: outcome for each, outcome in outcomes.items() if stands_for(name, each)}
        if "passed" not in meant.values():
            yield f"{name} was {' or '.join(sorted(set(meant.values()))) or 'not collected'}"
        else:
            yield from (f"{each} was {how}" for each, how in meant.items() if how not in ("passed", "deselected"))


def stands_for(name: str, node_id: str) -> bool:
    """Whether a name in the file means this node id."""
    return node_id == name or node_id.startswith((f"{name}[", f"{name}::"))


class ReportsPlugin:
    """Collects outcomes; at the end of a full run that is otherwise good, each named test must have passed."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_full = _is_full(config)
        self._outcomes: dict[str, str] = {}
        self.complaints: tuple[str, ...] = ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before anything is deselected."""
        self._outcomes |= {item.nodeid: "not run" for item in items}

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """The long ones: what stands for a report has to run always."""
        self._outcomes |= {item.nodeid: "deselected" for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set-up, call and clean-up must all pass."""
        if report.when == "setup" or report.outcome != "passed":
            self._outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a good session that has not shown what the file promises."""
        if self._is_full and exitstatus == pytest.ExitCode.OK:
            self.complaints = tuple(unproven(named_tests(read_reports()), self._outcomes))
            if self.complaints:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why."""
        if self.complaints:
            terminalreporter.section("tests/reports.toml names tests that did not pass", red=True, bold=True)
            for complaint in self.complaints:
                terminalreporter.write_line(complaint)


def _is_full(config: pytest.Config) -> bool:
    """Whether all tests were asked for, but those that are long."""
    everything = [str(config.rootpath / path) for path in config.getini("testpaths")]
    asked = [str(Path(config.invocation_params.dir, argument).resolve()) for argument in config.args]
    usual = not any(config.getoption(option, None) for option in UNUSUAL_OPTIONS)
    return usual and asked == everything and config.getoption("markexpr") in ("", "not long")
