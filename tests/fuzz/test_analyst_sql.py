"""No generated SQL writes, reads a file, reaches the network or shows another person's rows."""

from tests.fuzz import INPUTS, SEED
from tests.fuzz.analyst_sql import run_fuzz


def test_no_statement_gets_past_the_guard_and_the_sandbox() -> None:
    report = run_fuzz(max(300, INPUTS // 8), seed=SEED)
    assert report.problems == []
    assert report.verdicts["ok"] > 50
