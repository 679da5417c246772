"""What leaves of an answer, whole and in pieces."""

from random import Random

from copilot_runtime.extensions.analyst.guards import OutputGuard, guard_output
from tests.in_one_test import in_one_test

CASES = {
    "Found password=s3cret in it": "Found password=[REDACTED] in it",
    '{"password": "my long phrase", "x": 1}': '{"password=[REDACTED], "x": 1}',
    "**Password:** hunter2!": "**Password=[REDACTED]",
    "secret-key = zzz, auth_token:yyy": "secret-key=[REDACTED], auth_token=[REDACTED]",
    "Authorization: Bearer abc.def end": "Authorization [REDACTED] end",
    "Bearer abcdef123456789": "Bearer [REDACTED]",
    "key AKIAIOSFODNN7EXAMPLE.": "key [REDACTED].",
    "use sk-proj-abcdefghijklmnopqrstuvwx": "use [REDACTED]",
    "postgresql://bob:hunter2@db:5432/x": "postgresql://bob:[REDACTED]@db:5432/x",
    "in /home/deploy/a.csv, (/etc/passwd)": "in [REDACTED], ([REDACTED])",
    r"in C:\Users\bob\x.csv now": "in [REDACTED] now",
    "Sorry.\nTraceback (most recent call last)\n at foo.py\nValueError: x": "Sorry.\n",
    'a\n  File "/srv/x.py", line 12, in run\n    y\nb': "a\n  [REDACTED]\n    y\nb",
    "x\n-----BEGIN RSA PRIVATE KEY-----\nabc": "x\n",
    "password=" + "x" * 9_000 + " after": "password=[REDACTED] after",
    "sk-1" + "a" * 9_000 + " after": "[REDACTED] after",
}
HARMLESS = [
    "",
    "The average score is 0.85 across 42 records.",
    "The metric password_strength averages 0.8",
    "| environment | avg |\n|---|---|\n| dev | 0.49 |",
    "see https://example.com/home/x and/or/tmp/x, 3/4 km/h, /day, [x](/home/page)",
    "the bearer of bad news; Authorization: required for all",
    "sk-learn-is-a-very-long-library-name and task-force-2026-analysis-x",
    "A Traceback and a password are words; Profile 'x', line 3",
    "y" * 10_000,
    "password\n= x",
]


@in_one_test(("text", "expected"), CASES.items())
def test_a_secret_does_not_leave(text: str, expected: str) -> None:
    guard = OutputGuard()
    assert (guard.feed(text) + guard.finish()).replace('"[REDACTED]', "[REDACTED]") in (
        expected,
        expected.replace("[REDACTED],", '[REDACTED]",'),
    )
    assert guard.redactions > 0


@in_one_test("text", HARMLESS)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert guard_output(text) == text


@in_one_test("text", [*CASES, *HARMLESS, " ".join(CASES)])
def test_pieces_of_any_size_give_the_same_result(text: str) -> None:
    random = Random(text)
    for size in (1, 2, 3, 7, 0, 0, 0, 0, 0, 0):
        guard, pieces, at = OutputGuard(), list[str](), 0
        while at < len(text):
            step = size or random.choice((1, 2, 5, 20, 300, 5_000))
            pieces.append(guard.feed(text[at : at + step]))
            at += step
        assert "".join(pieces) + guard.finish() == guard_output(text)


def test_a_word_leaves_when_the_next_one_begins() -> None:
    guard = OutputGuard()
    pieces = [guard.feed(piece) for piece in ("The pass", "word is", " fine")]
    assert pieces == ["The ", "", "password is "]
    assert guard.finish() == "fine"
