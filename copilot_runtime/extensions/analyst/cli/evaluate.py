"""`copilot-runtime analyst test`: ask questions whose right answers are known, and compare."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from copilot_runtime.api.identity import Caller
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.serve import build_runtime
from copilot_runtime.config.loader import adapter_name
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.cli.client import read_local_settings
from copilot_runtime.extensions.analyst.evaluation.definition import (
    EvaluationQuestion,
    QuestionPlace,
    load_questions,
)
from copilot_runtime.extensions.analyst.evaluation.report import (
    describe_result,
    describe_totals,
    encode_json,
    encode_junit,
)
from copilot_runtime.extensions.analyst.evaluation.runner import (
    Evaluation,
    EvaluationReport,
    build_ask,
    evaluate_questions,
)
from copilot_runtime.extensions.analyst.results import Table
from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.settings import Settings

_MOST_ROWS = 501


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

    async def run_reference(question: EvaluationQuestion) -> Table:
        return await _run_reference(analyst, question)

    def show(result: Evaluation) -> None:
        for line in describe_result(result):
            typer.echo(line)

    try:
        await analyst.open()
        return await evaluate_questions(
            places,
            ask=build_ask(lambda model: AnalystAgent(analyst, model or agent.adapter)),
            run_reference=run_reference,
            timeout=options.timeout,
            parallel=options.parallel,
            on_result=show,
        )
    finally:
        await analyst.aclose()


async def _run_reference(analyst: Analyst, question: EvaluationQuestion) -> Table:
    """Return the rows of the reference SQL that the question's user may see."""
    caller = Caller(user=question.user or None)
    scope = await analyst.build_scope(caller, question.agent_name or None)
    query = guard_sql(question.sql, analyst.build_rules(scope), scope)
    return await analyst.engine.run(query, limit=_MOST_ROWS)
