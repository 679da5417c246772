"""Selects the tests of `make test`, `make test-quick` and `make test-all` by the lists in `lists`.

`-m "not nightly"` is `make test`, `-m quick` is `make test-quick`. Files that a selection leaves
out as a whole are not imported.
"""

import faulthandler
from collections.abc import Generator, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import settings

from tests.plugin.lists import (
    DAILY,
    EXTENSIVE,
    NIGHTLY_CASES,
    NIGHTLY_FILES,
    NIGHTLY_FIXTURES,
    NIGHTLY_PARAMETERS,
    NIGHTLY_TESTS,
    PROCESSES,
    SLOW,
    SLOW_LIMIT,
)

TESTS = Path(__file__).parent.parent

DAILY_EXPRESSION = "not nightly"
QUICK_EXPRESSION = "quick"


# a machine that is busy takes longer, and is no failure
settings.register_profile("daily", deadline=None, max_examples=25)
settings.register_profile("nightly", deadline=None, max_examples=200)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("nightly" if is_nightly_run(config) else "daily")


def is_nightly_run(config: pytest.Config) -> bool:
    """Return `True` if nightly tests are selected, as in `make test-all` or without `-m`."""
    return config.option.markexpr not in (DAILY_EXPRESSION, QUICK_EXPRESSION)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Return `True` if a path relative to `tests` matches one of the patterns."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def relative_path(path: Path) -> str:
    """Return a path relative to `tests`, or the whole path of a file elsewhere."""
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else path.as_posix()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if is_nightly_run(config) or collection_path.suffix != ".py":
        return None
    path = relative_path(collection_path)
    if config.option.markexpr == QUICK_EXPRESSION and matches(path, (*PROCESSES, *EXTENSIVE)):
        return True
    return matches(path, NIGHTLY_FILES) or None


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = relative_path(item.path)
        if is_nightly(item, path):
            item.add_marker("nightly")
        elif not matches(path, (*PROCESSES, *EXTENSIVE)):
            item.add_marker("quick")
        if matches(path, SLOW) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, bool | None, bool | None]:
    """End the process, with all stacks, if a test hangs although its limit has interrupted it."""
    faulthandler.dump_traceback_later(2 * SLOW_LIMIT, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def is_nightly(item: pytest.Item, path: str) -> bool:
    """Return `True` if only `make test-all` runs a test."""
    function = getattr(item, "originalname", item.name)
    if matches(path, NIGHTLY_FILES) or function in NIGHTLY_TESTS.get(path, "").split():
        return True
    if NIGHTLY_FIXTURES & {*getattr(item, "fixturenames", ())}:
        return True
    if NIGHTLY_PARAMETERS & parameters(item):
        return True
    if any(matches(path, [files]) and function not in names for files, names in DAILY.items()):
        return True
    return matches(f"{path}::{item.name}", NIGHTLY_CASES)


def parameters(item: pytest.Item) -> frozenset[str]:
    """Return the words of the id of a test's parameters."""
    _, _, case = item.name.partition("[")
    return frozenset(case.rstrip("]").replace("-", " ").split())
