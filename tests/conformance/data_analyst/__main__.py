"""`python -m tests.conformance.data_analyst FILE [--areas SG,AF] [--verbose]`."""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.data_analyst.cases import FILES, Result, read_suite, run_suite


def main(arguments: list[str] | None = None) -> int:
    """Run a file of cases, and return 0 if none of them fails."""
    parser = argparse.ArgumentParser(prog="tests.conformance.data_analyst", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FILES[0])
    parser.add_argument("--areas", default="", help="areas to run, as in SG,AF (default: all)")
    parser.add_argument("--verbose", action="store_true", help="name every case")
    options = parser.parse_args(arguments)
    with _silence_log():
        return _run(options, parser)


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    try:
        suite = read_suite(options.file, {area for area in options.areas.split(",") if area})
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{options.file} has no cases that can be read: {error}")
    results = asyncio.run(run_suite(suite))
    for result in results:
        if options.verbose or not result.has_passed:
            print(describe(result))
    failed = sum(not result.has_passed for result in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


@contextmanager
def _silence_log() -> Generator[None]:
    """Leave out of the log what the cases are about; tests that call `main` want it back."""
    package = logging.getLogger("copilot_runtime")
    before = package.level
    package.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        package.setLevel(before)


def describe(result: Result) -> str:
    """Return a case, and what is wrong with it."""
    case = result.case
    text = f"{'PASSED' if result.has_passed else 'FAILED'} {case.id} {case.area}"
    if result.has_passed:
        return text
    given = json.dumps(dict(case.given), ensure_ascii=False)[:1000]
    return "\n    ".join([text, f"given {given}", *result.problems])


if __name__ == "__main__":
    sys.exit(main())
