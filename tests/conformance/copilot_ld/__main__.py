"""`python -m tests.conformance.copilot_ld FILE [--parts G,H] [--verbose]`."""

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from tests.conformance.copilot_ld.cases import OUR_COPY, Result, read_cases, run_cases


def main(arguments: list[str] | None = None) -> int:
    """Run a file of cases, and return 0 if none of them fails."""
    parser = argparse.ArgumentParser(prog="tests.conformance.copilot_ld", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=OUR_COPY)
    parser.add_argument("--parts", default="", help="parts to run, as in G,H (default: all)")
    parser.add_argument("--verbose", action="store_true", help="name every case")
    options = parser.parse_args(arguments)
    try:
        cases = read_cases(options.file, {part for part in options.parts.split(",") if part})
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{options.file} has no cases that can be read: {error}")
    results = asyncio.run(run_cases(cases))
    for result in results:
        if options.verbose or result.outcome in ("failed", "unhandled"):
            print(describe(result))
    counts = Counter(result.outcome for result in results)
    failed = counts["failed"] + counts["unhandled"]
    print(f"{counts['passed']} passed, {failed} failed, {counts['quirk']} quirk", end="")
    print(f", {counts['skip']} skipped" if counts["skip"] else "")
    return 1 if failed else 0


def describe(result: Result) -> str:
    """Return a case, what it wants, and what came out."""
    case = result.case
    text = f"{result.outcome.upper():9} {case.id} {case.system} · {case.feature}"
    if result.outcome in ("failed", "unhandled"):
        wanted, actual = (
            json.dumps(value, ensure_ascii=False, default=str)[:2000]
            for value in (case.output, result.actual)
        )
        given = json.dumps(case.input, ensure_ascii=False)[:1000]
        text += f"\n    input    {given}\n    expected {wanted}\n    actual   {actual}"
    return text


if __name__ == "__main__":
    sys.exit(main())
