"""Send evaluation questions to an analyst and judge its answers."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal
from uuid import uuid4

from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import Events
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import TextMessage, new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import as_list, as_objects, get_text
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.evaluation.questions import (
    EvaluationQuestion,
    QuestionPlace,
    compare_tables,
)
from copilot_runtime.extensions.analyst.results import Table, to_plain
from copilot_runtime.extensions.analyst.view import CHART, QUESTION, TABLE, Answer
from copilot_runtime.extensions.scenarios.models import ScriptPlayer

_REFUSAL = re.compile(
    r"""
    \b (?: can(?:not|['\u2019]t|\ not) | could(?:n['\u2019]t|\ not) | unable | not\ able
       | (?:do|does|did)(?:n['\u2019]t|\ not) \b [^.!?]{0,40}
         \b (?:have|hold|contain|include|cover|know|exist|say|tell)
       | no \b [^.!?]{0,60} \b (?:data|information|column|table|record|metric|field)s?
       | (?:is|are)(?:n['\u2019]t|\ not) \b [^.!?]{0,40}
         \b (?:available|part|in\ the|included|recorded|known|something)
       | outside | only \b [^.!?]{0,40} \b (?:answer|help)
    ) """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """The rows that a frontend would get."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def list_tables(answer: Answer) -> Sequence[AnswerTable]:
    """Return the tables of an answer."""
    return [
        AnswerTable(
            columns=[get_text(it, "name") for it in as_objects(table.get("columns"))],
            rows=[as_list(row) for row in as_list(table.get("rows"))],
        )
        for table in answer.list(TABLE)
    ]


def find_clarification(answer: Answer) -> str:
    """Return the clarification question of an answer, or an empty text."""
    return get_text(answer.find(QUESTION) or {}, "question")


def is_refusal(answer: Answer) -> bool:
    """Return `True` if an answer has no data and says that the question cannot be answered."""
    has_data = answer.find(CHART) is not None or any(one.rows for one in list_tables(answer))
    return not has_data and not find_clarification(answer) and bool(_REFUSAL.search(answer.text))


MOST_ROWS = 500
"""Maximum number of rows of a reference: the limit for frontends."""

Verdict = Literal["correct", "wrong", "refused", "clarified", "error", "skipped"]
"""`refused` and `clarified` mark honest answers where rows were expected: better than wrong rows,
but not a pass."""

Ask = Callable[[EvaluationQuestion], Awaitable[Answer]]
RunReference = Callable[[EvaluationQuestion], Awaitable[Table]]

_TRUST = ("free_sql", "derived", "verified")


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """The result of one question."""

    place: QuestionPlace
    verdict: Verdict
    reason: str = ""
    """The reason for a failure."""
    answer: Answer = field(default_factory=Answer)
    seconds: float = 0.0

    @property
    def is_passed(self) -> bool:
        """`True` if the answer met all criteria."""
        return self.verdict == "correct"


@dataclass(slots=True)
class EvaluationReport:
    """The results of all questions."""

    results: Sequence[Evaluation]

    @property
    def is_passed(self) -> bool:
        """`True` if every question that was not skipped passed."""
        return all(one.verdict in ("correct", "skipped") for one in self.results)

    def count(self, verdict: Verdict) -> int:
        """Return the number of questions with this verdict."""
        return sum(one.verdict == verdict for one in self.results)


async def evaluate_questions(
    places: Sequence[QuestionPlace],
    *,
    ask: Ask,
    run_reference: RunReference,
    timeout: float = 120.0,
    parallel: int = 1,
    on_result: Callable[[Evaluation], None] | None = None,
) -> EvaluationReport:
    """Send all questions, and compare the answers with the references.

    Args:
        places: The questions.
        ask: Returns the answer of an analyst; see `build_ask`.
        run_reference: Runs the reference SQL as the question's user.
        timeout: Seconds for each question.
        parallel: Number of concurrent questions.
        on_result: Called with each result.
    """
    limit = asyncio.Semaphore(max(1, parallel))

    async def evaluate(place: QuestionPlace) -> Evaluation:
        async with limit:
            result = await _evaluate(place, ask, run_reference, timeout)
        if on_result is not None:
            on_result(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(evaluate(place)) for place in places]
    return EvaluationReport([task.result() for task in tasks])


def build_ask(build_agent: Callable[[Adapter | None], Agent]) -> Ask:
    """Return a function that sends questions to an agent.

    `build_agent` is called with the scripted model of a question, or `None` for the agent's own.
    """

    async def ask(question: EvaluationQuestion) -> Answer:
        model = ScriptModel(question) if question.script else None
        agent = build_agent(model)
        answer = Answer()
        properties = {"dataset_label": question.dataset, "agent_name": question.agent_name}
        run = RunInput(
            thread_id=str(uuid4()),
            run_id=str(uuid4()),
            messages=[TextMessage(id=new_id(), role="user", content=question.question)],
            properties={name: value for name, value in properties.items() if value},
            user=question.user or None,
        )
        async with aclosing(agent.run(run)) as events:
            async for event in events:
                answer.add(event)
        if model is not None and model.player.complaint:
            answer.error = model.player.complaint
        return answer

    return ask


def build_reference(analyst: Analyst) -> RunReference:
    """Return a function that runs reference SQL on an analyst's data."""

    async def run(question: EvaluationQuestion) -> Table:
        await analyst.open()
        scope = await analyst.build_scope(
            Caller(user=question.user or None), question.agent_name or None
        )
        query = analyst.guard_sql(question.sql, scope)
        return await analyst.engine.run(query, limit=MOST_ROWS + 1)

    return run


async def evaluate_analyst(
    analyst: Analyst,
    adapter: Adapter,
    places: Sequence[QuestionPlace],
    *,
    timeout: float = 120.0,
    parallel: int = 1,
    on_result: Callable[[Evaluation], None] | None = None,
) -> EvaluationReport:
    """Evaluate an analyst on all questions, with its own model or their scripts."""
    return await evaluate_questions(
        places,
        ask=build_ask(lambda model: AnalystAgent(analyst, model or adapter)),
        run_reference=build_reference(analyst),
        timeout=timeout,
        parallel=parallel,
        on_result=on_result,
    )


class ScriptModel(Adapter):
    """A model that returns the scripted answers of a question."""

    def __init__(self, question: EvaluationQuestion) -> None:
        self.player = ScriptPlayer()
        self.player.extend(question.script)

    async def stream(self, request: ChatRequest) -> Events:
        """Yield the events of the next answer."""
        for event in self.player.play(request):
            yield event


async def _evaluate(
    place: QuestionPlace, ask: Ask, run_reference: RunReference, timeout: float
) -> Evaluation:
    question = place.question
    if question.skip:
        return Evaluation(place=place, verdict="skipped", reason=question.skip)
    started = perf_counter()
    answer = Answer()
    try:
        async with asyncio.timeout(timeout):
            reference = await _read_reference(question, run_reference)
            answer = await ask(question)
    except TimeoutError:
        verdict, reason = "error", f"no answer within {timeout:g} s"
    except CopilotError as error:
        verdict, reason = "error", error.message
    except Exception as error:  # an agent may raise anything; the other questions continue
        verdict, reason = "error", f"{type(error).__name__}: {error}"
    else:
        verdict, reason = judge_answer(question, reference, answer)
    return Evaluation(
        place=place,
        verdict=verdict,
        reason=reason,
        answer=answer,
        seconds=0.0 if question.script else perf_counter() - started,
    )


async def _read_reference(
    question: EvaluationQuestion, run_reference: RunReference
) -> AnswerTable | None:
    if question.expect != "rows":
        return None
    try:
        table = await run_reference(question)
    except CopilotError as error:
        raise CopilotError(f"The reference SQL failed: {error.message}") from error
    if table.is_truncated or len(table.rows) > MOST_ROWS:
        raise CopilotError(f"The reference SQL returns more than {MOST_ROWS} rows: aggregate.")
    return AnswerTable(
        columns=[column.name for column in table.columns],
        rows=[[to_plain(cell) for cell in row] for row in table.rows],
    )


def judge_answer(
    question: EvaluationQuestion, reference: AnswerTable | None, answer: Answer
) -> tuple[Verdict, str]:
    """Return the verdict on an answer, with the reason for a failure."""
    if answer.error:
        return "error", answer.error
    match question.expect:
        case "refusal":
            verdict, reason = _judge_refusal(answer)
        case "clarification":
            verdict, reason = _judge_clarification(answer)
        case "rows":
            verdict, reason = _judge_rows(question, reference, answer)
    if verdict != "correct":
        return verdict, reason
    text = answer.text.casefold()
    for phrase in question.contains:
        if phrase.casefold() not in text:
            return "wrong", f"the text does not say {phrase!r}"
    for banned in question.excludes:
        if banned.casefold() in text:
            return "wrong", f"the text says {banned!r}"
    return "correct", ""


def _judge_refusal(answer: Answer) -> tuple[Verdict, str]:
    if is_refusal(answer):
        return "correct", ""
    if question := find_clarification(answer):
        return "clarified", f"expected a refusal, found a question: {question}"
    return "wrong", "expected that it says that the data cannot tell, found an answer"


def _judge_clarification(answer: Answer) -> tuple[Verdict, str]:
    if find_clarification(answer):
        return "correct", ""
    if is_refusal(answer):
        return "refused", "expected a question back, found a refusal"
    return "wrong", "expected a question back, found an answer"


def _judge_rows(
    question: EvaluationQuestion, reference: AnswerTable | None, answer: Answer
) -> tuple[Verdict, str]:
    assert reference is not None
    differences: list[str] = []
    tables = list_tables(answer)
    for table in reversed(tables):
        difference = compare_tables(
            reference.columns,
            reference.rows,
            table.columns,
            table.rows,
            is_ordered=question.ordered,
            tolerance=question.tolerance,
            may_have_more=question.extra_columns,
        )
        if difference is None:
            return _judge_trust(question, answer)
        differences.append(difference)
    if not reference.rows and not tables and answer.find(CHART) is None:
        return "correct", ""  # frontends do not display tables without rows
    if asked := find_clarification(answer):
        return "clarified", f"asked back: {asked}"
    if is_refusal(answer):
        return "refused", "said that the data cannot tell"
    return "wrong", differences[0] if differences else "the answer has no rows"


def _judge_trust(question: EvaluationQuestion, answer: Answer) -> tuple[Verdict, str]:
    level = question.trust
    if level is None:
        return "correct", ""
    has = _TRUST.index(answer.trust) if answer.trust in _TRUST else -1
    if has >= _TRUST.index(level):
        return "correct", ""
    return "wrong", f"expected an answer that is {level}, found {answer.trust or 'no mark'}"
