"""A planner answers as any agent: with a plan that grows, questions, and the outcome."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime
from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Action, Resume, RunInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    Activity,
    Event,
    Interrupt,
    TextMessageContent,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.election import Candidate, SimilarityElector
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.log import MemoryPlanLog
from copilot_runtime.extensions.planner.supervisor import ModelSupervisor
from copilot_runtime.extensions.planner.worker import AgentWorker, PlanRequests
from copilot_runtime.testing import ScriptedAdapter, call, say
from tests.extensions.planner.crew import always

pytestmark = pytest.mark.anyio


def build_planner(
    plans: Sequence[Any], answers: Sequence[Any], verdicts: Sequence[Any] = (), **options: Any
) -> PlannerAgent:
    """Return a planner whose model writes `plans`, and whose one assistant `answers`."""

    async def list_actions(run: RunInput) -> Sequence[Action]:
        return run.actions

    writer = DirectAgent(ScriptedAdapter(*answers))
    requests = PlanRequests(list_actions)
    engine = PlanEngine(
        MemoryPlanLog(),
        SimilarityElector(
            always([Candidate(name="writer", description="Writes texts of all kinds.")]),
            HashingEmbedder(),
            floor=-1,
        ),
        AgentWorker(always({"writer": writer}), requests.get),
        ModelSupervisor(ScriptedAdapter(*verdicts), summary="join"),
    )
    return PlannerAgent(ScriptedAdapter(*plans), engine, requests, **options)


def write_plan(*tasks: Any) -> Sequence[Event]:
    return call("create_plan", {"tasks": [*tasks]})


async def ask(agent: PlannerAgent, *resume: Resume, **fields: Any) -> list[Event]:
    question = TextMessage(id="q", role="user", content="Write a letter.")
    run = RunInput(thread_id="t", run_id="r", messages=[question], resume=resume, **fields)
    return [event async for event in agent.run(run)]


def read_text(events: Sequence[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))


def read_plan(events: Sequence[Event]) -> Any:
    return [event.content for event in events if isinstance(event, Activity)][-1]


async def test_a_request_becomes_a_plan_and_the_answer_its_outcome() -> None:
    agent = build_planner(
        [write_plan({"name": "letter", "purpose": "Write the text of a letter."})],
        [say("Dear Ann,")],
    )
    events = await ask(agent)
    assert read_text(events) == "Dear Ann,"
    (task,) = read_plan(events)["tasks"]
    assert (task["assistant"], task["status"]) == ("writer", "finished")


async def test_a_plan_that_cannot_be_judged_ends_with_what_its_tasks_brought() -> None:
    line = {"name": "line", "purpose": "Write a line.", "evaluation": "It rhymes."}
    ships = {"name": "ships", "purpose": "Count ships."}
    agent = build_planner(
        [write_plan(line, {**ships, "subtasks": [{"name": "sea", "purpose": "At sea."}]})],
        [say("A text.")] * 2,
        [say("hm")] * 4,
    )
    events = await ask(agent)
    assert read_text(events) == (
        "The plan could not be carried out to its end. The outcome of the task 'plan' could not be "
        "judged: the model gave no verdict.\n\nThe outcome of the task 'line' could not be judged: "
        "the model gave no verdict.\n\nA text.\n\nA text."
    )


async def test_a_plan_beyond_the_limits_goes_back_to_the_model() -> None:
    agent = build_planner(
        [
            write_plan({"name": "letter"}),
            write_plan({"name": "letter", "purpose": "Write."}),
        ],
        [say("Dear Ann,")],
    )
    assert read_text(await ask(agent)) == "Dear Ann,"
    assert agent.adapter.requests[1].messages[-1].result == "tasks[0] has no purpose."  # pyright: ignore


async def test_a_character_of_a_plan_in_two_pieces_is_whole() -> None:
    begin, whole, end = write_plan({"name": "letter", "purpose": "Draw \N{GRINNING FACE}."})
    assert isinstance(whole, ActionExecutionArgs)
    head, _, tail = whole.delta.partition("\N{GRINNING FACE}")
    pieces = [replace(whole, delta=delta) for delta in (f"{head}\ud83d", f"\ude00{tail}")]
    events = await ask(build_planner([[begin, *pieces, end]], [say("Done.")]))
    (task,) = read_plan(events)["tasks"]
    assert task["purpose"] == "Draw \N{GRINNING FACE}."


async def test_a_plan_that_was_cut_off_goes_back_to_the_model() -> None:
    plan = {"name": "letter", "purpose": "Write."}
    agent = build_planner([write_plan(plan)[:-1], write_plan(plan)], [say("Dear Ann,")])
    assert read_text(await ask(agent)) == "Dear Ann,"
    told = agent.adapter.requests[1].messages[-1].result  # pyright: ignore
    assert told.startswith("The answer was cut off within the call.")


async def test_a_request_without_work_is_answered_without_a_plan() -> None:
    agent = build_planner([say("Hello!")], [])
    events = await ask(agent)
    assert (read_text(events), [e for e in events if isinstance(e, Activity)]) == ("Hello!", [])


async def test_a_person_approves_a_plan() -> None:
    agent = build_planner(
        [write_plan({"name": "letter", "purpose": "Write."})],
        [say("Dear Ann,")],
        needs_approval=True,
    )
    (question,) = [event for event in await ask(agent) if isinstance(event, Interrupt)]
    assert question.message == "May the plan begin? Write a letter."
    resume = Resume(value="", interrupt_id=question.interrupt_id, payload={"approved": True})
    assert read_text(await ask(agent, resume)) == "Dear Ann,"


async def test_a_correction_is_shown_with_its_task() -> None:
    agent = build_planner(
        [write_plan({"name": "letter", "purpose": "Write.", "evaluation": "It is signed."})],
        [say("Dear Ann,"), say("Yours, Bob")],
        [
            call(
                "report_evaluation",
                {
                    "passed": False,
                    "missing": "The signature.",
                    "tasks": [{"name": "sign", "purpose": "Sign the letter."}],
                },
            ),
            call("report_evaluation", {"passed": True}),
        ],
    )
    events = await ask(agent)
    assert read_text(events) == "Dear Ann,\n\nYours, Bob"
    (task,) = read_plan(events)["tasks"]
    assert (task["rounds"], task["evaluation"]["passed"], task["tasks"][0]["name"]) == (
        1,
        True,
        "sign",
    )


async def test_a_planner_is_an_agent_of_a_runtime() -> None:
    agent = build_planner([write_plan({"name": "letter", "purpose": "Write."})], [say("Dear Ann,")])
    runtime = CopilotRuntime(agents={"planner": agent})
    assert runtime is not None
