"""The threat model: each line of what is defended names tests, and they are there."""

import re
from pathlib import Path

from tests.documents import DOCS, ROOT
from tests.in_one_test import in_one_test

PAGE = (DOCS / "access" / "threat-model.md").read_text()
DEFENDED = PAGE.partition("## What is defended")[2].partition("## What is not defended")[0]
ROWS = [
    line
    for line in DEFENDED.splitlines()
    if line.startswith("| ") and not line.startswith("| threat |")
]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_there_are_many_threats() -> None:
    assert len(ROWS) > 30


@in_one_test("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_line_of_what_is_defended_names_tests_that_are_there(row: str) -> None:
    tests = TEST.findall(row.split("|")[3])

    assert tests, "a line without a test is a wish"
    assert [name for path, name in tests if not has_test(ROOT / path, name)] == []


def has_test(path: Path, name: str) -> bool:
    return path.is_file() and re.search(rf"def {name}\(", path.read_text()) is not None
