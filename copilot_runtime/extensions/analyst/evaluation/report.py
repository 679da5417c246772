"""Reports of an evaluation, as text, JSON or JUnit XML.

The report of scripted questions is deterministic: it has no times and no identifiers.
"""

from collections.abc import Iterator, Sequence
from json import dumps as write
from typing import Any
from xml.etree import ElementTree

from copilot_runtime.base.jsonvalue import drop_none
from copilot_runtime.extensions.analyst.evaluation.runner import (
    AnswerRecord,
    Evaluation,
    EvaluationReport,
    Verdict,
)
from copilot_runtime.extensions.scenarios.report import clean_text, encode_suites
from copilot_runtime.extensions.scenarios.values import shorten

FORMAT = 1
"""The version of the report format."""

_VERDICTS: Sequence[tuple[Verdict, str]] = (
    ("correct", "correct"),
    ("wrong", "wrong"),
    ("refused", "refused honestly"),
    ("clarified", "asked back"),
    ("error", "with errors"),
    ("skipped", "skipped"),
)
_MARKS = {"correct": "✓", "skipped": "-", "refused": "?", "clarified": "?"}
_PREVIEW_ROWS = 5


def describe_totals(report: EvaluationReport) -> str:
    """Return the number of questions per verdict, in one line."""
    parts = [
        f"{count} {words}"
        for verdict, words in _VERDICTS
        if (count := report.count(verdict)) or verdict == "correct"
    ]
    return ", ".join(parts)


def describe_result(result: Evaluation) -> Iterator[str]:
    """Yield the lines for a result: passed, or the differences from the expected answer."""
    mark = _MARKS.get(result.verdict, "✗")
    yield f"{mark} {shorten(result.place.question.title)}"
    if result.reason:
        yield f"    {result.verdict}: {shorten(result.reason, 500)}"
    if result.is_passed or result.verdict == "skipped":
        return
    yield f"    at {result.place}"
    yield from (f"    {line}" for line in _describe_answer(result.answer))


def encode_text(report: EvaluationReport) -> str:
    """Return a report for a terminal."""
    lines = [line for result in report.results for line in describe_result(result)]
    return "\n".join([*lines, "", describe_totals(report), ""])


def encode_json(report: EvaluationReport) -> str:
    """Return a report as JSON."""
    values: dict[str, Any] = {
        "format": FORMAT,
        **{verdict: report.count(verdict) for verdict, _ in _VERDICTS},
        "questions": [_build_result(result) for result in report.results],
    }
    return f"{write(values, indent=2, ensure_ascii=False)}\n"


def encode_junit(report: EvaluationReport) -> str:
    """Return a report as JUnit XML, which CI systems read."""
    suites = ElementTree.Element("testsuites", name="copilot-runtime analyst test")
    for path in dict.fromkeys(result.place.path for result in report.results):
        results = [result for result in report.results if result.place.path == path]
        errors = sum(result.verdict == "error" for result in results)
        skipped = sum(result.verdict == "skipped" for result in results)
        passed = sum(result.is_passed for result in results)
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=path,
            tests=str(len(results)),
            failures=str(len(results) - passed - errors - skipped),
            errors=str(errors),
            skipped=str(skipped),
            time=f"{sum(result.seconds for result in results):.3f}",
        )
        for result in results:
            _add_case(suite, result)
    return encode_suites(suites)


def _add_case(suite: ElementTree.Element, result: Evaluation) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=result.place.path,
        name=clean_text(result.place.question.title),
        file=result.place.path,
        line=str(result.place.line),
        time=f"{result.seconds:.3f}",
    )
    if result.is_passed:
        return
    tags = {"skipped": "skipped", "error": "error"}
    tag = tags.get(result.verdict, "failure")
    element = ElementTree.SubElement(case, tag, message=clean_text(shorten(result.reason, 500)))
    if tag != "skipped":
        element.set("type", result.verdict)
        element.text = clean_text("\n".join(_describe_answer(result.answer)))


def _describe_answer(answer: AnswerRecord) -> Iterator[str]:
    for sql in answer.sql:
        yield f"sql: {shorten(sql, 500)}"
    for table in answer.tables[-1:]:
        yield f"columns: {', '.join(table.columns)}"
        yield from (f"row: {shorten(str([*row]))}" for row in table.rows[:_PREVIEW_ROWS])
        if len(table.rows) > _PREVIEW_ROWS:
            yield f"… {len(table.rows):,} rows"
    if answer.text.strip():
        yield f"text: {shorten(answer.text, 500)}"


def _build_result(result: Evaluation) -> dict[str, Any]:
    question, answer = result.place.question, result.answer
    return drop_none(
        {
            "name": question.title,
            "question": question.question,
            "file": result.place.path,
            "line": result.place.line,
            "tags": [*question.tags] or None,
            "expect": question.expect,
            "verdict": result.verdict,
            "reason": result.reason or None,
            "seconds": round(result.seconds, 3) or None,
            "text": answer.text.strip() or None,
            "sql": [*answer.sql] or None,
            "trust": answer.trust or None,
            "clarification": answer.clarification or None,
            "calls": [*answer.calls] or None,
        }
    )
