"""What is traced of a plan: its writing, its tasks, what people are asked, and how it ends."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import action
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Resume
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import (
    PlanEntry,
    PlanEvent,
    QuestionAsked,
    TaskStarted,
)
from copilot_runtime.extensions.planner.log import MemoryPlanLog, PlanQuery
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import TaskContext, Verdict
from copilot_runtime.extensions.planner.spans import PLAN_OUTCOMES, count_plans_from_zero
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv, trace_block
from copilot_runtime.telemetry.genai import start_run_span
from copilot_runtime.testing import ScriptedAdapter, call, say
from copilot_runtime.threads.run_log import MemoryBus
from tests.extensions.planner.crew import Crew, build_engine, build_plan, finish
from tests.extensions.planner.test_agent import build_planner, write_plan
from tests.telemetry.recorded import Spans, find_violations, run
from tests.telemetry.test_conventions import draw

pytestmark = pytest.mark.anyio

LETTER = {"name": "letter", "purpose": "Write the text of a letter."}
CHECKED = {**LETTER, "evaluation": "It is signed."}
SIGNING = {
    "passed": False,
    "missing": "The signature.",
    "tasks": [{"name": "sign", "purpose": "Sign the letter."}],
}


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans, keeps_content=True)


@action
def look_up(name: str) -> str:
    """Find an address."""
    return f"{name}, 1 High Street"


async def talk(planner: PlannerAgent, telemetry: LocalTelemetry, **more: Any) -> None:
    """Ask a planner something, as a client does."""
    runtime = Runtime(
        DirectAgent(ScriptedAdapter()),
        {"planner": planner},
        MemoryBus(),
        sources=[[look_up]],
        telemetry=telemetry,
    )
    await run(runtime, agent="planner", **more)


def read_measures(telemetry: LocalTelemetry, name: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return how many values a metric has, and their sum, by its attributes."""
    family = next(one for one in telemetry.metrics.collect() if one.metric.name == name)
    return {tuple(point.attributes.values()): (point.count, point.value) for point in family.points}


def start_run(telemetry: LocalTelemetry) -> Span:
    """Begin the span of a run of the planner."""
    return start_run_span(telemetry, agent="planner", thread_id="t", run_id="r", protocol="agui")


async def wait_for(
    engine: PlanEngine, plan_id: str, kind: type[PlanEvent], task_id: str = ""
) -> None:
    """Return once something has happened to a plan."""
    async with aclosing(engine.follow(plan_id)) as entries:
        async for entry in entries:
            event = getattr(entry, "event", None)
            if isinstance(event, kind) and task_id in ("", getattr(event, "task_id", "")):
                return


async def test_a_plan_is_a_tree_of_its_writing_its_tasks_and_their_agents(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    planner = build_planner(
        [write_plan(CHECKED)],
        [call("look_up", {"name": "Ann"}), say("Dear Ann,"), say("Yours, Bob")],
        [call("report_evaluation", SIGNING), call("report_evaluation", {"passed": True})],
    )
    await talk(planner, telemetry)
    election = {"embeddings hashing:512": {}}
    signing = {**election, "invoke_agent writer": {"chat": {}}}
    letter = {
        **election,
        "invoke_agent writer": {"chat": {}, "execute_tool look_up": {}},
        "chat": {},
        "execute_task writer": signing,
    }
    assert draw(spans.spans) == {
        "invoke_agent planner": {
            "plan planner": {"chat": {}},
            "invoke_workflow planner": {"execute_task writer": letter},
        }
    }
    assert {one.name: find_violations(one) for one in spans.spans if find_violations(one)} == {}


async def test_a_task_says_who_did_it_and_how_it_was_judged_and_corrected(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    planner = build_planner(
        [write_plan(CHECKED)],
        [say("Dear Ann,"), say("Yours, Bob")],
        [call("report_evaluation", SIGNING), call("report_evaluation", {"passed": True})],
    )
    await talk(planner, telemetry)
    signing, letter = spans.of(semconv.EXECUTE_TASK)
    assert letter.attributes[semconv.TASK_ID] == "1"
    assert letter.attributes[semconv.TASK_OUTCOME] == "finished"
    assert letter.attributes[semconv.AGENT_NAME] == "writer"
    assert isinstance(letter.attributes[semconv.TASK_SCORE], float)
    assert letter.content[semconv.TASK_NAME] == "letter"
    assert signing.attributes[semconv.TASK_ROUND] == 1
    assert signing.content[semconv.TASK_OUTPUT] == "Yours, Bob"
    assert [(event.name, event.attributes) for event in letter.events] == [
        (
            semconv.EVENT_EVALUATION_RESULT,
            {
                semconv.EVALUATION_NAME: "task",
                semconv.EVALUATION_SCORE_VALUE: 0.0,
                semconv.EVALUATION_SCORE_LABEL: "failed",
                semconv.EVALUATION_EXPLANATION: "The signature.",
            },
        ),
        (semconv.EVENT_CORRECTION, {semconv.PLAN_TASKS: 1, semconv.TASK_ROUND: 1}),
        (
            semconv.EVENT_EVALUATION_RESULT,
            {
                semconv.EVALUATION_NAME: "task",
                semconv.EVALUATION_SCORE_VALUE: 1.0,
                semconv.EVALUATION_SCORE_LABEL: "passed",
            },
        ),
    ]


async def test_where_content_is_not_kept_nothing_of_a_plan_is(spans: Spans) -> None:
    planner = build_planner(
        [write_plan({**CHECKED, "needs_approval": False})],
        [say("Dear Ann,"), NetworkError("Ann is out")],
        [call("report_evaluation", SIGNING)],
    )
    await talk(planner, LocalTelemetry(spans))
    said = str([(one.attributes, one.content, one.events, one.message) for one in spans.spans])
    for word in ("letter", "sign", "Ann", "text of"):
        assert word not in said


async def test_tokens_and_costs_of_a_task_count_for_those_above_it(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async def spend(state: TaskState, context: TaskContext) -> str:
        await context.add_usage(60, 0.5)
        return "ok"

    engine = build_engine(Crew({"a": spend, "b": spend}), telemetry=telemetry)
    await finish(engine, build_plan("a", "b", agent="planner"))
    workflow = spans.named("invoke_workflow planner")
    took = [
        (one.attributes[semconv.TASK_TOKENS], one.attributes[semconv.TASK_COST])
        for one in (*spans.of(semconv.EXECUTE_TASK), workflow)
    ]
    assert took == [(60, 0.5), (60, 0.5), (120, 1.0)]
    assert workflow.attributes[semconv.PLAN_TASKS] == 2


async def test_a_question_and_its_answer_are_events_of_the_task(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    now = 100.0

    def read_clock() -> float:
        return now

    engine = build_engine(Crew(), MemoryPlanLog(read_clock), telemetry=telemetry, clock=read_clock)
    plan_id = await engine.submit(build_plan({"name": "a", "needs_approval": True}))
    async for entry in engine.follow(plan_id):
        if isinstance(event := getattr(entry, "event", None), QuestionAsked):
            assert read_measures(telemetry, "copilot.plan.questions.open") == {(): (0, 1)}
            assert read_measures(telemetry, "copilot.plans.open") == {(): (0, 1)}
            now = 130.0
            await engine.answer(plan_id, event.question_id, "approve", note="Go", user="ann")
    (task,) = spans.of(semconv.EXECUTE_TASK)
    assert [(event.name, event.attributes) for event in task.events] == [
        (
            semconv.EVENT_QUESTION,
            {
                semconv.QUESTION_KIND: "approval",
                semconv.QUESTION_TEXT: "May the task 'a' begin? Do a.",
            },
        ),
        (
            semconv.EVENT_ANSWER,
            {
                semconv.QUESTION_KIND: "approval",
                semconv.QUESTION_ANSWER: "approve",
                semconv.QUESTION_NOTE: "Go",
            },
        ),
    ]
    assert task.attributes[semconv.TASK_WAITING] == 30.0
    assert read_measures(telemetry, semconv.PLAN_WAITING) == {(): (1, 30.0)}


async def test_a_failed_task_names_its_error_and_what_needs_it_is_skipped(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    async def fail(state: TaskState, context: TaskContext) -> str:
        raise ValueError("boom")

    crew = Crew({"a": fail}, {"plan": [Verdict(False, "Nothing came of a.")]})
    engine = build_engine(crew, telemetry=telemetry)
    tasks = ["a", {"name": "b", "depends_on": ["a"]}]
    await finish(engine, build_plan(*tasks, agent="planner"))
    failed, skipped = spans.of(semconv.EXECUTE_TASK)
    workflow = spans.named("invoke_workflow planner")
    assert (failed.status, failed.attributes[semconv.ERROR_TYPE]) == ("error", "ValueError")
    assert failed.message == "It failed with ValueError."
    assert (skipped.status, skipped.attributes[semconv.TASK_OUTCOME]) == ("unset", "skipped")
    assert skipped.content[semconv.TASK_REASON] == "It needs 'a', which did not finish."
    assert workflow.attributes[semconv.PLAN_OUTCOME] == "failed"
    assert workflow.attributes[semconv.ERROR_TYPE] == semconv.ERROR_TYPE_EVALUATION
    assert read_measures(telemetry, semconv.TASK_COUNT) == {
        ("writer", "failed"): (1, 1),
        ("skipped",): (1, 1),
    }
    assert read_measures(telemetry, semconv.PLAN_COUNT) == {("planner", "failed"): (1, 1)}


async def test_a_plan_that_a_person_refuses_is_stopped(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    engine = build_engine(Crew(), telemetry=telemetry)
    plan_id = await engine.submit(build_plan("a", agent="planner", needs_approval=True))
    async for entry in engine.follow(plan_id):
        if isinstance(event := getattr(entry, "event", None), QuestionAsked):
            await engine.answer(plan_id, event.question_id, "reject")
    workflow = spans.named("invoke_workflow planner")
    assert (workflow.status, workflow.attributes[semconv.PLAN_OUTCOME]) == ("unset", "stopped")
    assert spans.of(semconv.EXECUTE_TASK) == []


async def test_another_server_goes_on_in_the_same_trace_and_no_span_stays_open(
    spans: Spans, telemetry: LocalTelemetry, tmp_path: Path
) -> None:
    open_spans: list[Span] = []
    telemetry.listen(
        lambda span, phase: open_spans.append(span) if phase == "start" else open_spans.remove(span)
    )
    hangs = asyncio.Event()

    async def hang(state: TaskState, context: TaskContext) -> str:
        await hangs.wait()
        return ""

    nested = {"name": "a", "subtasks": [{"name": "b", "purpose": "Do b."}]}
    one = build_engine(Crew({"b": hang}), SqlitePlanLog(tmp_path / "plans.db"))
    await one.open()
    with trace_block(start_run(telemetry)):
        plan_id = await one.submit(build_plan(nested, agent="planner"))
    await wait_for(one, plan_id, TaskStarted, "1.1")
    await one.aclose()
    other = build_engine(Crew(), SqlitePlanLog(tmp_path / "plans.db"), telemetry=telemetry)
    await other.open()
    async for _ in other.follow(plan_id):
        pass
    await other.aclose()
    assert open_spans == []
    root = spans.named("invoke_agent planner")
    lives = spans.of(semconv.INVOKE_WORKFLOW)
    assert [
        (life.attributes[semconv.PLAN_EPOCH], life.attributes[semconv.PLAN_OUTCOME])
        for life in lives
    ] == [(1, "interrupted"), (2, "finished")]
    assert {life.parent_id for life in lives} == {root.span_id}
    assert {span.trace_id for span in spans.spans} == {root.trace_id}
    tasks = spans.of(semconv.EXECUTE_TASK)
    assert [
        (task.attributes[semconv.TASK_ID], task.attributes[semconv.TASK_OUTCOME]) for task in tasks
    ] == [("1.1", "interrupted"), ("1", "interrupted"), ("1.1", "finished"), ("1", "finished")]
    assert tasks[2].attributes[semconv.TASK_ATTEMPT] == 2


async def test_an_answer_to_a_question_of_an_earlier_server_is_noted(
    spans: Spans, telemetry: LocalTelemetry, tmp_path: Path
) -> None:
    one = build_engine(Crew(), SqlitePlanLog(tmp_path / "plans.db"))
    await one.open()
    plan_id = await one.submit(build_plan("a", agent="planner", needs_approval=True))
    await wait_for(one, plan_id, QuestionAsked)
    await one.aclose()
    other = build_engine(Crew(), SqlitePlanLog(tmp_path / "plans.db"), telemetry=telemetry)
    await other.open()
    (question_id,) = (await other.get(plan_id)).questions
    await other.answer(plan_id, question_id, "approve")
    async for _ in other.follow(plan_id):
        pass
    await other.aclose()
    (event,) = spans.named("invoke_workflow planner").events
    assert event.attributes == {semconv.QUESTION_ANSWER: "approve"}


async def test_a_plan_of_a_program_begins_a_trace(spans: Spans, telemetry: LocalTelemetry) -> None:
    engine = build_engine(Crew(), telemetry=telemetry)
    await finish(engine, build_plan("a", agent="planner"))
    assert spans.named("invoke_workflow planner").parent_id == ""


async def test_the_counter_of_plans_begins_at_zero(telemetry: LocalTelemetry) -> None:
    count_plans_from_zero(telemetry, "planner")
    counts = read_measures(telemetry, semconv.PLAN_COUNT)
    assert counts == {("planner", outcome): (1, 0) for outcome in PLAN_OUTCOMES}


async def test_who_listens_is_told_what_happens_to_plans_until_it_is_enough() -> None:
    engine = build_engine(Crew())
    seen: list[tuple[str, str]] = []

    def note(plan: Plan, entry: PlanEntry) -> None:
        seen.append((plan.id, entry.event.type))
        raise ValueError("A listener that fails is logged, and harms nobody.")

    end = engine.listen(note)
    plan = await finish(engine, build_plan("a"))
    end()
    await finish(engine, build_plan("b"))
    kinds = ("plan_created", "task_started", "task_assigned", "task_started", "task_output")
    assert seen[:5] == [(plan.id, kind) for kind in kinds]
    assert {plan_id for plan_id, _ in seen} == {plan.id}


async def test_a_later_run_that_follows_a_plan_leads_to_its_trace(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    planner = build_planner([write_plan(LETTER)], [say("Dear Ann,")], needs_approval=True)
    await talk(planner, telemetry)
    ((plan_id, question_id),) = [
        (one.id, question_id)
        for one in await planner.engine.log.list_plans(PlanQuery())
        for question_id in (await planner.engine.get(one.id)).questions
    ]
    resume = Resume(value="", interrupt_id=f"{plan_id}/{question_id}", payload={"approved": True})
    await talk(planner, telemetry, resume=(resume,), run_id="r2")
    first, second = [one for one in spans.of(semconv.INVOKE_AGENT) if one.parent_id == ""]
    assert first.links == []
    assert [link.context.trace_id for link in second.links] == [first.trace_id]
    assert second.attributes[semconv.PLAN_ID] == plan_id
    assert spans.named("invoke_workflow planner").trace_id == first.trace_id
