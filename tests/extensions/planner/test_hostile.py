"""Models and agents of a planner do all they can think of: plans end, and say why."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.api import Adapter, Agent, ChatRequest, RunInput
from copilot_runtime.api.events import Event, Events, Usage
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.testing import Client, ReplyFailed, call, say
from copilot_runtime.testing.client import Reply
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


class Model(Adapter):
    """Answers each request by what it is for: a plan, a task, a verdict, a summary."""

    def __init__(self, plans: Sequence[Any], *, work: Any = None, verdict: Any = None) -> None:
        self.plans = [*plans]
        self.work = say("Done.") if work is None else work
        self.verdict = call("report_evaluation", {"passed": True}) if verdict is None else verdict
        self.requests: list[ChatRequest] = []

    async def stream(self, request: ChatRequest) -> Events:
        self.requests.append(request)
        names = {one.name for one in request.actions}
        if "create_plan" in names:
            turn = self.plans.pop(0)
        elif "report_evaluation" in names:
            turn = self.verdict
        else:
            turn = self.work
        events: Any = turn(request) if callable(turn) else turn
        for event in events:
            yield event


def plan(*tasks: Any) -> Sequence[Event]:
    """Return the events of a plan that cost nothing: of names, or of tasks."""
    values = [{"name": it, "purpose": "Do it."} if isinstance(it, str) else it for it in tasks]
    usage = Usage(model="m", input_tokens=0, output_tokens=0)
    return [*call("create_plan", {"tasks": values}), usage]


def task(name: str, *subtasks: Any, **fields: Any) -> Mapping[str, Any]:
    return {"name": name, "purpose": "Do it.", "subtasks": [*subtasks], **fields}


async def ask(model: Adapter, *, agents: Any = None, actions: Any = (), **limits: Any) -> Any:
    """Ask the planner of a runtime, and return the answer with the plan in its state."""
    settings = Settings(
        threads="memory", planner=PlannerSettings(name="planner", store="memory", **limits)
    )
    runtime = CopilotRuntime(model, agents=agents, actions=actions, settings=settings)
    async with Client(runtime, agent="planner") as client:
        return await client.say("Do it all.")


def tasks_of(reply: Reply) -> Sequence[Any]:
    return reply.state["plan"]["tasks"]


CIRCLE = [task("a", depends_on=["b"]), task("b", depends_on=["a"])]


@in_one_test(
    ("wrong", "sentence"),
    [
        (
            plan(task("a", task("b", task("c", task("d"))))),
            "level 4 of the plan; at most 3 are allowed, by `planner.depth`",
        ),
        (plan(*"abcde"), "5 tasks side by side; at most 4 are allowed, by `planner.width`"),
        (
            plan(task("a", *(task(n) for n in "bcd")), task("e", *(task(n) for n in "fgh"))),
            "8 tasks; at most 6 are allowed in all, by `planner.tasks`",
        ),
        (plan(*CIRCLE), "The tasks a, b in tasks wait for each other."),
        (plan("a", "a"), "tasks has two tasks with the name 'a'."),
        (
            plan(task("a", depends_on=["z"])),
            "depends on 'z', which is not beside it. There are: a.",
        ),
        (plan(), "A plan needs at least one task"),
        (call("create_plan", ""), "A plan needs at least one task"),
        (call("create_plan", '{"tasks": [], "sum": NaN}'), "are no JSON object."),
        (call("create_plan", "{ not JSON"), "The arguments of create_plan are no JSON object."),
        (call("create_plan", "[1, 2]"), "The arguments of create_plan are no JSON object."),
        (call("create_plan", {"tasks": "all"}), "tasks must be a list of tasks."),
        (
            call("create_plan", {"tasks": ["all"]}),
            "tasks[0] must be an object with name and purpose.",
        ),
        (
            call("create_plan", '{"tasks": [' + '{"subtasks": [' * 5000),
            "The arguments of create_plan are no JSON object.",
        ),
        (plan({"purpose": "x"}), "tasks[0] has no name."),
        (plan({"name": "x"}), "tasks[0] has no purpose."),
        (plan({"name": 7, "purpose": "x"}), "tasks[0].name must be a text."),
        (
            plan({"name": "x" * 201, "purpose": "x"}),
            "tasks[0].name has 201 characters; at most 200 fit.",
        ),
        (plan({"name": "x", "purpose": "x" * 20_001}), "tasks[0].purpose has 20001 characters"),
        (plan(task("a", depends_on="b")), "tasks[0].depends_on must be a list of names."),
        (plan(task("a", needs_approval="yes")), "tasks[0].needs_approval must be true or false."),
        (plan(task("a", tokens=0)), "tasks[0].tokens must be a whole number above zero."),
        (plan(task("a", tokens=True)), "tasks[0].tokens must be a whole number above zero."),
        (plan({"name": "a", "purpose": "x", "subtasks": {}}), "tasks[0].subtasks must be a list"),
        (
            [*call("create_plan", {"tasks": []}), *call("create_plan", {}, id="other")],
            "Make one call: create_plan takes all tasks.",
        ),
        (call("delete_all", {}), "There is no 'delete_all' here. Call create_plan."),
    ],
)
async def test_a_plan_that_is_none_goes_back_with_what_is_wrong_and_fails_in_the_end(
    wrong: Sequence[Event], sentence: str
) -> None:
    model = Model([wrong] * 3)
    with pytest.raises(ReplyFailed) as failure:
        await ask(model, depth=3, width=4, tasks=6)
    assert sentence in str(failure.value)
    told = [message.result for message in model.requests[1].messages[-1:]]  # pyright: ignore
    assert sentence in told[0]
    assert len(model.requests) == 3


async def test_a_plan_of_ten_megabytes_is_not_read() -> None:
    long = plan({"name": "a", "purpose": "x" * 10_000_000})
    with pytest.raises(ReplyFailed, match="a plan of more than 1000000 characters"):
        await ask(Model([long]))


async def test_a_plan_of_fifty_thousand_tasks_is_counted_and_refused() -> None:
    text = '{"tasks":[' + ",".join(['{"name":"a"}'] * 50_000) + "]}"
    with pytest.raises(ReplyFailed, match="50000 tasks; at most 200 are allowed"):
        await ask(Model([call("create_plan", text)] * 3))


async def test_a_task_for_an_assistant_that_is_not_there_fails_and_names_those_there_are() -> None:
    reply = await ask(Model([plan(task("a", assistant="nobody")), plan("a")]))
    (one,) = tasks_of(reply)
    assert one["reason"] == (
        "There is no assistant 'nobody' for the task 'a'. There are: assistant."
    )


def correct(*tasks: Any) -> Sequence[Event]:
    return call(
        "report_evaluation", {"passed": False, "missing": "More figures.", "tasks": [*tasks]}
    )


async def test_an_evaluator_that_never_agrees_ends_after_so_many_rounds() -> None:
    model = Model([plan(task("a", evaluation="Good."))], verdict=correct(task("again")))
    reply = await ask(model, rounds=2)
    one = tasks_of(reply)[0]
    assert (one["status"], one["reason"]) == (
        "failed",
        "More figures. It is so after 2 rounds of corrections, the most by `planner.rounds`.",
    )


async def test_corrections_that_need_corrections_end_at_the_depth_of_the_plan() -> None:
    endless = correct(task("again", evaluation="Good."))
    reply = await ask(Model([plan(task("a", evaluation="Good."))], verdict=endless), depth=3)
    reasons = json.dumps(reply.state["plan"])
    assert "level 4 of the plan; at most 3 are allowed, by `planner.depth`" in reasons
    assert reply.state["plan"]["status"] == "failed"


@in_one_test(
    ("limits", "sentence"),
    [
        (
            {"tasks": 2},
            "The plan would have 3 tasks; at most 2 are allowed in all, by `planner.tasks`.",
        ),
        ({"width": 1}, "would have 2 subtasks; at most 1 are allowed, by `planner.width`."),
    ],
)
async def test_corrections_end_at_the_size_of_the_plan(
    limits: Mapping[str, int], sentence: str
) -> None:
    model = Model([plan(task("a", evaluation="Good."))], verdict=correct(task("again")))
    reply = await ask(model, rounds=9, **limits)
    assert sentence in tasks_of(reply)[0]["reason"]


@in_one_test(
    "garbage",
    [
        say("I think it is fine"),
        call("report_evaluation", "{"),
        call("report_evaluation", {"passed": "perhaps"}),
        [],
    ],
)
async def test_a_verdict_that_is_none_is_asked_for_once_more_and_fails(garbage: Any) -> None:
    model = Model([plan(task("a", evaluation="Good."))], verdict=garbage)
    reply = await ask(model)
    assert tasks_of(reply)[0]["reason"] == (
        "The outcome of the task 'a' could not be judged: the model gave no verdict."
    )


async def test_a_verdict_in_words_is_read() -> None:
    model = Model(
        [plan(task("a", evaluation="Good."))], verdict=say('```json\n{"passed": true}\n```')
    )
    assert tasks_of(await ask(model))[0]["status"] == "finished"


async def test_an_evaluator_that_never_answers_ends_with_the_time_of_the_plan() -> None:
    class Silent(Model):
        async def stream(self, request: ChatRequest) -> Events:
            if any(one.name == "report_evaluation" for one in request.actions):
                await asyncio.Event().wait()
            async for event in super().stream(request):
                yield event

    reply = await ask(Silent([plan(task("a", evaluation="Good."))]), seconds=0.3)
    assert reply.state["plan"]["reason"] == (
        "The plan has worked for 0.3 seconds; no more are allowed, by `planner.seconds`."
    )


class Forwarding(Agent):
    """Has another agent of a runtime answer, as one that calls this very server would."""

    name = "planner"
    runtime: CopilotRuntime

    async def run(self, run: RunInput) -> Events:
        assert not callable(self.runtime.agents)
        async for event in self.runtime.agents[self.name].run(run):
            yield event


async def test_a_planner_that_is_its_own_worker_is_refused() -> None:
    failed = call("report_evaluation", {"passed": False})
    model = Model([plan("a")], verdict=failed)
    inner = Forwarding()
    settings = Settings(threads="memory", planner=PlannerSettings(name="planner", store="memory"))
    runtime = inner.runtime = CopilotRuntime(model, agents={"inner": inner}, settings=settings)
    async with Client(runtime, agent="planner") as client:
        reply = await client.say("Do it all.")
    assert tasks_of(reply)[0]["reason"].startswith("A planner was given a task of a plan")
    assert len(model.requests) == 2  # the plan, and the verdict on what failed


def spend(*events: Any, model: str = "m") -> Sequence[Event]:
    return [*events, Usage(input_tokens=60, output_tokens=0, model=model)]


async def test_tokens_of_a_request_that_failed_count() -> None:
    def fail(request: ChatRequest) -> Any:
        yield Usage(input_tokens=60, output_tokens=0, model="m")
        raise RuntimeError("The provider is gone.")

    model = Model([plan("a", task("b", depends_on=["a"]), "c")], work=fail)
    reply = await ask(model, tokens=50, concurrency=1)
    assert reply.state["plan"]["tokens"] == 60
    assert reply.state["plan"]["reason"] == (
        "The plan has used 60 tokens; at most 50 are allowed, by its `planner.tokens`."
    )


async def test_a_task_has_a_budget_of_its_own() -> None:
    model = Model(
        [plan(task("a", task("x"), task("y", depends_on=["x"]), tokens=50), "b")],
        work=spend(*say("Done.")),
    )
    reply = await ask(model, concurrency=1)
    a, b = tasks_of(reply)
    assert a["tasks"][1]["reason"] == (
        "The task 'a' has used 60 tokens; at most 50 are allowed, by its `tokens`."
    )
    assert b["status"] == "finished"


async def test_a_summary_that_cannot_be_paid_for_is_the_outcomes_one_after_the_other() -> None:
    model = Model([plan("a", "b")], work=spend(*say("Done.")))
    reply = await ask(model, tokens=100)
    assert reply.text == "Done.\n\nDone."


async def test_dollars_end_a_plan() -> None:
    model = Model(
        [plan("a", "b", "c")],
        work=[
            *say("Done."),
            Usage(input_tokens=10**6, output_tokens=10**6, provider="openai", model="gpt-4o"),
        ],
    )
    reply = await ask(model, dollars=0.01, concurrency=1)
    reasons = [one.get("reason", "") for one in tasks_of(reply)]
    assert reasons[0] == ""
    assert reasons[1].endswith("at most $0.01 are allowed, by `planner.dollars`.")


async def test_a_limit_of_dollars_without_a_price_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Model([plan("a", "b")], work=spend(*say("Done."), model="home-made"))
    with caplog.at_level(logging.WARNING):
        reply = await ask(model, dollars=1)
    assert reply.state["plan"]["status"] == "finished"
    assert caplog.text.count("may cost $1 by planner.dollars") == 1


async def test_an_agent_that_writes_without_end_fails_its_own_task() -> None:
    def write(request: ChatRequest) -> Sequence[Event]:
        is_long = "Your task: a" in str(request.messages[-1])
        return say(["x" * 100_000] * (11 if is_long else 1))

    model = Model([plan("a", "b")], work=write)
    a, b = tasks_of(await ask(model))
    assert a["reason"] == "The assistant wrote more than 1000000 characters for one task."
    assert b["status"] == "finished"


async def test_a_result_that_is_too_long_is_kept_nowhere() -> None:
    @action
    def read_all() -> str:
        return "x" * 50_000_000

    def work(request: ChatRequest) -> Sequence[Event]:
        if "read_all" in str(request.messages[-1]):
            return say("It failed.")
        return call("read_all", id="c")

    reply = await ask(Model([plan("a")], work=work), actions=[read_all])
    assert reply.text == "It failed."


async def test_an_action_that_is_not_async_is_called_in_a_task() -> None:
    @action
    def add(a: int, b: int) -> int:
        return a + b

    def work(request: ChatRequest) -> Sequence[Event]:
        last = request.messages[-1]
        return (
            say(str(getattr(last, "result", "")))
            if hasattr(last, "result")
            else call("add", {"a": 1, "b": 2})
        )

    reply = await ask(Model([plan("a")], work=work), actions=[add])
    assert reply.text == "3"


async def test_an_agent_that_calls_tools_without_end_fails_its_own_task() -> None:
    @action
    def look() -> str:
        return "Nothing yet."

    def work(request: ChatRequest) -> Sequence[Event]:
        if "Your task: a" not in str(request.messages):
            return say("Done.")
        return call("look", id=f"call-{len(request.messages)}")

    a, b = tasks_of(await ask(Model([plan("a", "b")], work=work), actions=[look]))
    assert a["reason"] == (
        "The model called actions 8 times in a row without an answer, the most by `max_turns`."
    )
    assert b["status"] == "finished"


async def test_calls_of_one_id_in_one_turn_are_each_made_and_kept() -> None:
    numbers: list[int] = []

    @action
    async def add(number: int) -> int:
        numbers.append(number)
        return number

    def work(request: ChatRequest) -> Sequence[Event]:
        if numbers:
            return say("Done.")
        return [*call("add", {"number": 1}, id="c"), *call("add", {"number": 2}, id="c")]

    (a,) = tasks_of(await ask(Model([plan("a")], work=work), actions=[add]))
    assert (sorted(numbers), a["calls"], a["status"]) == ([1, 2], 2, "finished")
