"""Runs failed tests once more, each alone, when all others have ended (`--rerun-failed`).

A test that passes alone is unstable: the summary lists it with its first error, and the run is
green. The run stays red if a test fails alone, if more than three are unstable, if more than
twenty failed, with `--maxfail`, if a file could not be collected, or if a worker of xdist ended, so
that its tests did not run. Works with and without xdist.
"""

import subprocess
import sys
from typing import Any

import pytest

MOST_UNSTABLE = 3
"""Unstable tests with which a run is still green."""

MOST_RERUNS = 20
"""Failed tests that are run again; of more, none is."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rerun-failed",
        action="store_true",
        help="run failed tests once more, alone, and list those that pass as unstable",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.rerun_failed and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedTests(config), "failed-tests")


class FailedTests:
    """The tests of a run that failed, and what became of them alone."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failures: dict[str, pytest.TestReport] = {}
        self._is_complete = True
        self._unstable: list[pytest.TestReport] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_complete &= not report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        self._is_complete &= not error

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.setdefault(report.nodeid, report)

    @pytest.hookimpl(trylast=True)  # when workers and fixtures have ended
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self._may_rerun():
            self._rerun()
            if len(self._failures) == len(self._unstable) <= MOST_UNSTABLE:
                session.exitstatus = pytest.ExitCode.OK

    def _may_rerun(self) -> bool:
        is_limited = bool(self._config.getoption("maxfail"))
        return self._is_complete and not is_limited and len(self._failures) <= MOST_RERUNS

    def _rerun(self) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        terminal.ensure_newline()
        terminal.section(f"{len(self._failures)} failed; each runs again, alone", "-")
        for nodeid, report in self._failures.items():
            passes = passes_alone(nodeid, self._config)
            terminal.write_line(f"{nodeid} {'passed' if passes else 'failed'}")
            if passes:
                self._unstable.append(report)
                for outcome in ("failed", "error"):
                    reports = terminal.stats.get(outcome, [])
                    reports[:] = [one for one in reports if one.nodeid != nodeid]
        if self._unstable:
            terminal.stats["unstable"] = self._unstable
            for outcome in ("failed", "error"):
                if not terminal.stats.get(outcome):
                    terminal.stats.pop(outcome, None)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._unstable:
            return
        terminalreporter.section("unstable: failed, and passed alone", "=", yellow=True)
        for report in self._unstable:
            terminalreporter.section(report.nodeid, "_", yellow=True)
            terminalreporter.write_line(report.longreprtext)
        for report in self._unstable:
            terminalreporter.write_line(f"UNSTABLE {report.nodeid} - {first_error(report)}")
        if len(self._unstable) > MOST_UNSTABLE:
            terminalreporter.write_line(f"More than {MOST_UNSTABLE} unstable tests fail a run.")


def first_error(report: pytest.TestReport) -> str:
    """Return the first line of a report's error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longreprtext).partition("\n")[0]


def passes_alone(nodeid: str, config: pytest.Config) -> bool:
    """Run one test in a process of its own and return `True` if it passes."""
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "--quiet", nodeid]
    if config.option.markexpr:
        command += ["-m", config.option.markexpr]
    done = subprocess.run(command, cwd=config.rootpath, stdout=subprocess.PIPE)
    return done.returncode == pytest.ExitCode.OK
