"""`copilot-runtime analyst test`: ask questions whose right answers are known, and report."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json import dumps as write
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import typer

from copilot_runtime.api.identity import Caller
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import drop_none, get_text
from copilot_runtime.cli.serve import build_runtime
from copilot_runtime.config.loader import adapter_name
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.cli.client import read_local_settings
from copilot_runtime.extensions.analyst.evaluation.questions import QuestionPlace, load_questions
from copilot_runtime.extensions.analyst.evaluation.runner import (
    Evaluation,
    EvaluationReport,
    Verdict,
    evaluate_analyst,
    find_clarification,
    list_tables,
)
from copilot_runtime.extensions.analyst.view import Answer
from copilot_runtime.extensions.scenarios.report import clean_text, encode_suites
from copilot_runtime.extensions.scenarios.values import shorten
from copilot_runtime.extensions.settings import Settings

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


def _describe_answer(answer: Answer) -> Iterator[str]:
    for sql in (get_text(one, "sql") for one in answer.lineage):
        yield f"sql: {shorten(sql, 500)}"
    for table in list_tables(answer)[-1:]:
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
            "sql": [get_text(one, "sql") for one in answer.lineage] or None,
            "trust": answer.trust or None,
            "clarification": find_clarification(answer) or None,
            "calls": [*answer.calls] or None,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOptions:
    """The questions to run, the server to run them on, and the report files to write."""

    files: Sequence[Path] = ()
    config: Path | None = None
    data: Sequence[str] = ()
    parallel: int = 4
    timeout: float = 120
    report: Path | None = None
    junit: Path | None = None


def run_tests(options: TestOptions) -> int:
    """Run all questions, print the report, and return the exit status."""
    with TemporaryDirectory(prefix="analyst-") as folder:
        settings = read_local_settings(options.config, options.data, Path(folder))
        paths = [*options.files] or [Path(settings.analyst.folder) / "tests"]
        places = load_questions(paths)
        if not places:
            raise ConfigurationFailed(
                f"There are no questions in {', '.join(map(str, paths))}.",
                hint="`copilot-runtime analyst init` writes an example of a file of questions.",
            )
        report = asyncio.run(_evaluate(places, settings, options))
    if options.report:
        options.report.write_text(encode_json(report), encoding="utf-8")
    if options.junit:
        options.junit.write_text(encode_junit(report), encoding="utf-8")
    typer.echo(describe_totals(report))
    return 0 if report.is_passed else 1


async def _evaluate(
    places: Sequence[QuestionPlace], settings: Settings, options: TestOptions
) -> EvaluationReport:
    runtime = build_runtime(adapter_name(settings), settings)
    agents = await runtime.runtime.agents_for(Caller())
    agent = agents[settings.analyst.name]
    assert isinstance(agent, AnalystAgent)
    analyst = agent.analyst

    def show(result: Evaluation) -> None:
        for line in describe_result(result):
            typer.echo(line)

    try:
        await analyst.open()
        return await evaluate_analyst(
            analyst,
            agent.adapter,
            places,
            timeout=options.timeout,
            parallel=options.parallel,
            on_result=show,
        )
    finally:
        await analyst.aclose()
