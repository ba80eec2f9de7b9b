"""tests/reports.toml: every number is there, with tests that exist or a reason; a full run has to run them."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.reports import Report, ReportsPlugin, named_tests, read_reports, stands_for, unproven

ROOT = Path(__file__).parents[1]
# The numbers of the notes on engines; the rest are reports that were found to be double or not to concern an engine.
NUMBERS = [
    1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14, 15, 17, 18, 20, 21, 22, 23, 25, 27, 28, 29, 30, 31, 33, 34, 36, 37, 38,
    39, 41, 42, 43, 45, 46, 47, 48, 50, 52,
]  # fmt: skip
REPORTS = read_reports()


def test_every_number_is_there() -> None:
    assert [report.number for report in REPORTS] == NUMBERS


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: str(report.number))
def test_a_report_has_its_reference_and_its_tests_or_a_reason(report: Report) -> None:
    assert report.references
    assert all("#" in each or "@" in each or "/" in each for each in report.references)
    assert report.fault
    assert report.tests or report.reason
    assert len(set(report.tests)) == len(report.tests)
    assert report.reason == "" or report.reason.endswith(".")


@pytest.mark.parametrize("name", [*named_tests(REPORTS), *(name for report in REPORTS for name in report.on_gpu)])
def test_a_named_test_exists(name: str) -> None:
    path, *parts = name.split("[", 1)[0].split("::")
    assert (ROOT / path).is_file()
    body: Any = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for part in parts:
        found = [each for each in body if _name_of(each) == part]
        assert len(found) == 1, f"{part} stands {len(found)} times in {path}"
        body = getattr(found[0], "body", [])
    assert parts, "a file alone says too little"


def test_every_test_with_a_number_is_named() -> None:
    """A test is called after the reports that it is about: `test_18_...`, `test_14a_...`, `test_23_and_25_...`."""
    named = {(name.split("::")[0], name.split("[")[0].split("::")[-1]) for name in named_tests(REPORTS)}
    called = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\d+[a-z]?_\w+)", path.read_text(encoding="utf-8"))
    }
    assert called - named == set()


def _name_of(node: ast.stmt) -> str | None:
    """Of a function or class, or of a class that a state machine makes: `TestMachine = Machine.TestCase`."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


@pytest.mark.parametrize(
    ("name", "node_id", "expected"),
    [
        ("a.py::test_x", "a.py::test_x", True),
        ("a.py::test_x", "a.py::test_x[1]", True),
        ("a.py::test_x[1]", "a.py::test_x[1]", True),
        ("a.py::test_x[1]", "a.py::test_x[2]", False),
        ("a.py::test_x", "a.py::test_xy", False),
        ("a.py::TestX", "a.py::TestX::test_y[1]", True),
    ],
)
def test_a_name_stands_for_all_its_parameters(name: str, node_id: str, expected: bool) -> None:
    assert stands_for(name, node_id) == expected


def test_what_has_not_passed_is_told() -> None:
    outcomes = {
        "a.py::w[20]": "passed",
        "a.py::w[999]": "deselected",
        "a.py::x[1]": "passed",
        "a.py::x[2]": "skipped",
        "a.py::y": "passed",
        "a.py::z": "deselected",
    }
    assert list(unproven(["a.py::w", "a.py::y"], outcomes)) == []
    assert list(unproven(["a.py::x", "a.py::z", "b.py::gone"], outcomes)) == [
        "a.py::x[2] was skipped",
        "a.py::z was deselected",
        "b.py::gone was not collected",
    ]


NAMED = "checks/test_named.py::test_named"
SUITES = {
    "passes": ("def test_named(): pass", [], 0, ""),
    "skipped": ("import pytest\n@pytest.mark.skip\ndef test_named(): pass", [], 1, f"{NAMED} was skipped"),
    "renamed": ("def test_other(): pass", [], 1, f"{NAMED} was not collected"),
    "chosen": ("def test_other(): pass", ["-k", "other"], 0, ""),
}


@pytest.mark.parametrize("name", SUITES)
def test_a_full_run_has_to_pass_what_is_named(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, arguments, exit_code, complaint = SUITES[name]
    pytester.makefile(".ini", pytest="[pytest]\ntestpaths = checks\naddopts = -m 'not long'\nmarkers = long")
    folder = pytester.mkdir("checks")
    (folder / "test_named.py").write_text(source)
    (folder / "test_always.py").write_text("def test_always(): pass")
    report = Report(1, ("owner/repository#1",), "a fault", (NAMED,))
    monkeypatch.setattr("tests.reports.read_reports", lambda: [report])
    done = pytester.inline_run("-p", "no:cacheprovider", *arguments, plugins=[Installer()])
    plugin = Installer.latest
    assert plugin is not None
    assert done.ret == exit_code
    assert plugin.complaints == ((complaint,) if complaint else ())


class Installer:
    """Registers the plugin as the suite's conftest does."""

    latest: ReportsPlugin | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        Installer.latest = ReportsPlugin(config)
        config.pluginmanager.register(Installer.latest)
