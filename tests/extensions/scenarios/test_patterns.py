"""Regular expressions of scenarios that take longer than anybody waits."""

import subprocess
import sys

_PROGRAM = """
from copilot_runtime.extensions.scenarios import patterns
from copilot_runtime.extensions.scenarios.definition import TextCheck
patterns.SECONDS = 0.05
text = "a" * 60 + "!"
print(TextCheck(matches=("(a+)+$",)).find_violation(text))
print(TextCheck(not_matches=("(a+)+$",)).find_violation(text))
print(TextCheck(matches=("a!",)).find_violation(text))
"""


def test_a_search_that_takes_years_is_a_failure_that_says_so() -> None:
    """In a process of its own: the test runner may use the timer of this one."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line.partition(" (the search took")[0] for line in lines] == [
        "matches '(a+)+$'",
        "does not match '(a+)+$'",
        "None",
    ], done.stderr
    assert "took more than 2 s" in lines[0]
