"""Every door, every person and every credential: add `--full`."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.extensions.access.matrix.report import Report, run_matrix
from tests.extensions.access.matrix.rows import ROWS


def main() -> int:
    """Run the matrix, print a summary, and return how the process ends."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.extensions.access.matrix", description=__doc__
    )
    parser.add_argument("--full", action="store_true", help="all pairs in place of some of each")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(run_matrix(Path(folder), is_full=options.full))
    return _print_summary(report, time.monotonic() - began)


def _print_summary(report: Report, seconds: float) -> int:
    for part, findings in report.findings.items():
        for finding in findings:
            _write(finding)
        _write(f"{part:>10}: {report.asked[part]:6} asked, {len(findings)} wrong")
    unknown = sorted({*report.doors} - {*ROWS})
    for door in unknown:
        _write(f"{door} has no row in tests/extensions/access/matrix/rows.py")
    wrong = sum(map(len, report.findings.values())) + len(unknown)
    asked = sum(report.asked.values())
    _write(f"{len(report.doors)} doors, {asked} requests, {wrong} wrong, {seconds:.0f} s")
    return 1 if wrong else 0


def _write(line: object) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
