"""Runs start, end and are stopped, each on its own; every log has a first and a last event."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

import anyio
import pytest

from copilot_runtime.actions import action
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Caller, RunInput
from copilot_runtime.api.events import (
    ActionExecutionEnd,
    Custom,
    Event,
    Events,
    RunFailed,
    RunFinished,
    RunStarted,
)
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import (
    RUN_FAILED,
    AgentNotFound,
    Cancelled,
    Interrupted,
    LimitExceeded,
    Misuse,
    NetworkError,
    NotFound,
    Refused,
    RunStalled,
)
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.run import Run
from copilot_runtime.threads.run_log import MemoryBus
from tests.in_one_test import in_one_test
from tests.runs import Says, forever, log_of, run_input, runtime_of, runtime_with, told

pytestmark = pytest.mark.anyio

STOPPED = RunFailed(error=Cancelled("The run was stopped.").report())


def seen(name: str) -> Custom:
    return Custom(name=name, value=None)


async def test_a_run_is_a_log_with_a_first_and_a_last_event() -> None:
    runtime = runtime_of(say(["Hel", "lo"]))
    await runtime.start(run_input())

    assert await log_of(runtime) == [
        RunStarted(run_id="r", thread_id="t"),
        *say(["Hel", "lo"]),
        RunFinished(),
    ]


async def test_events_can_be_read_before_the_run_has_ended() -> None:
    gate = Gate()
    runtime = Runtime(DirectAgent(ScriptedAdapter(say("Hello"), gate=gate)), {}, MemoryBus())
    await runtime.start(run_input())
    async with aclosing(runtime.follow("r")) as reader:
        first = await anext(reader)
        gate.release()
        second = await anext(reader)
    await runtime.aclose()

    assert first.events == [RunStarted(run_id="r", thread_id="t")]
    assert second.events == say("Hello")[:1]


async def test_a_run_stopped_on_its_way_ends_its_agent_and_its_log() -> None:
    agent = Says(seen("begun"), forever)
    runtime = runtime_with(agent)
    await runtime.start(run_input(detached=True))
    runtime.stop("r")

    assert (await log_of(runtime))[-1] == STOPPED
    assert agent.ended.is_set()


async def test_a_stop_while_the_agent_leaves_a_scope_of_anyio_is_not_lost() -> None:
    async def open_connection() -> None:  # as httpx does
        with anyio.CancelScope() as scope:
            scope.cancel()
            asyncio.get_running_loop().call_soon(runtime.stop, "r")
            await anyio.sleep_forever()
        await forever()

    runtime = runtime_with(Says(open_connection))
    await runtime.start(run_input(detached=True))

    assert (await log_of(runtime))[-1] == STOPPED


async def swallow() -> None:
    """Wait until the task is cancelled, and go on as if nothing had been."""
    with suppress(asyncio.CancelledError):
        await forever()


@in_one_test("rest", [[], [seen("late"), RunFinished(), seen("later")]])
async def test_a_stopped_run_ends_as_stopped_though_its_agent_goes_on(rest: list[Event]) -> None:
    agent = Says(seen("begun"), swallow, *rest)
    runtime = runtime_with(agent)
    await runtime.start(run_input(detached=True))

    assert runtime.stop("r")
    assert (await log_of(runtime))[1:] == [seen("begun"), STOPPED]
    assert agent.ended.is_set()


async def test_a_stopped_run_ends_as_stopped_though_its_agent_takes_the_cancellation_back() -> None:
    async def take_back() -> None:
        await swallow()
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()

    runtime = runtime_with(Says(take_back, seen("late")))
    await runtime.start(run_input(detached=True))
    runtime.stop("r")

    assert (await log_of(runtime))[1:] == [STOPPED]


async def test_an_agent_that_waits_on_after_a_stop_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.runtime.run._CANCEL_GRACE_SECONDS", 0.01)
    agent = Says(swallow, forever)
    runtime = runtime_with(agent)
    await runtime.start(run_input(detached=True))
    runtime.stop("r")

    assert (await log_of(runtime))[1:] == [STOPPED]
    assert agent.ended.is_set()


async def test_an_agent_that_stops_its_own_run_says_nothing_more() -> None:
    begun = asyncio.Event()

    async def stop_myself() -> None:
        await begun.wait()
        runtime.stop("r")

    runtime = runtime_with(Says(seen("begun"), stop_myself, seen("late")))
    await runtime.start(run_input(detached=True))
    begun.set()

    assert (await log_of(runtime))[1:] == [seen("begun"), STOPPED]


class Told(MemoryBus):
    """A bus that calls a function with each first and last event before it takes it."""

    def __init__(self, told: Callable[[Event], Any]) -> None:
        super().__init__()
        self.told = told

    async def append(self, log_id: str, event: Event) -> None:
        if isinstance(event, RunStarted | RunFinished):
            await self.told(event)
        await super().append(log_id, event)


@in_one_test("stops", [1, 2])
async def test_a_run_stopped_before_its_first_step_still_has_an_end(stops: int) -> None:
    async def stop(event: Event) -> None:
        runtime.stop("r")
        if stops == 2:  # its task exists by then, and has not been run
            asyncio.get_running_loop().call_soon(runtime.stop, "r")

    runtime = Runtime(Says(forever), {}, Told(stop), max_runs=1)
    await runtime.start(run_input(detached=True))

    assert await log_of(runtime) == [RunStarted(run_id="r", thread_id="t"), STOPPED]
    await runtime.aclose()


async def test_a_run_whose_last_event_is_being_written_cannot_be_stopped() -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()

    async def wait(event: Event) -> None:
        if isinstance(event, RunFinished):
            writing.set()
            await go_on.wait()

    runtime = Runtime(Says(seen("done")), {}, Told(wait))
    await runtime.start(run_input(detached=True))
    await writing.wait()
    stopped = runtime.stop("r")
    go_on.set()

    assert stopped is False
    assert (await log_of(runtime))[-1] == RunFinished()


async def test_stopping_twice_is_stopping_once() -> None:
    runtime = runtime_with(Says(forever))
    await runtime.start(run_input(detached=True))
    runtime.stop("r")
    runtime.stop("r")
    log = await log_of(runtime)
    runtime.stop("r")

    assert log.count(STOPPED) == 1


async def test_stopping_a_run_that_never_was_is_nothing() -> None:
    runtime_of().stop("nobody")


async def test_runs_at_one_time_do_not_mix() -> None:
    runtime = runtime_of(*(say(str(number)) for number in range(10)))
    runs = [run_input(str(number)) for number in range(10)]

    logs = await asyncio.gather(*(told(runtime, run) for run in runs))

    assert logs == [[*say(str(number)), RunFinished()] for number in range(10)]


async def test_one_id_cannot_run_twice_at_a_time() -> None:
    runtime = runtime_with(Says(forever))
    await runtime.start(run_input())

    with pytest.raises(Misuse, match="'r' is already active"):
        await runtime.start(run_input())
    await runtime.aclose()


async def test_one_id_started_twice_at_the_same_moment_runs_once() -> None:
    async def slow(run: RunInput) -> RunInput:
        await asyncio.sleep(0)
        return run

    agent = Says(seen("done"))
    runtime = runtime_with(agent, hooks=Hooks(before_request=slow))
    starts = [runtime.start(run_input(detached=True)) for _ in range(2)]
    results = await asyncio.gather(*starts, return_exceptions=True)

    assert await log_of(runtime) == [
        RunStarted(run_id="r", thread_id="t"),
        seen("done"),
        RunFinished(),
    ]
    assert [type(result) for result in results] == [Run, Misuse]
    assert agent.began == 1


async def test_an_id_whose_log_still_exists_is_refused() -> None:
    runtime = runtime_of(say("one"), say("two"))
    await told(runtime, run_input(detached=True))

    with pytest.raises(Misuse):
        await runtime.start(run_input(detached=True))


async def test_a_run_too_many_is_refused_until_a_place_is_free() -> None:
    runtime = runtime_with(Says(forever), max_runs=1)
    await runtime.start(run_input("first"))
    with pytest.raises(LimitExceeded, match="All 1 run slots are in use") as refused:
        await runtime.start(run_input("second"))
    runtime.stop("first")
    await log_of(runtime, "first")
    await runtime.start(run_input("second"))
    await runtime.aclose()

    assert refused.value.status_code == 429


async def test_runs_started_at_one_moment_count_too() -> None:
    runtime = runtime_with(Says(forever), max_runs=2, sources=[asyncio_sources])
    starts = [runtime.start(run_input(str(number))) for number in range(5)]
    results = await asyncio.gather(*starts, return_exceptions=True)
    await runtime.aclose()

    assert sum(isinstance(result, LimitExceeded) for result in results) == 3


async def asyncio_sources(run: RunInput) -> list[object]:
    await asyncio.sleep(0)
    return []


async def test_a_run_that_takes_too_long_is_ended_and_says_so() -> None:
    agent = Says(seen("begun"), forever)
    runtime = runtime_with(agent, run_timeout=0.01)

    error = RunStalled("The answer took longer than 0.01 seconds.")
    assert await told(runtime, run_input()) == [seen("begun"), RunFailed(error=error.report())]
    assert agent.ended.is_set()


class Outside(BaseException):
    """What no `except Exception` catches."""


@in_one_test(
    ("error", "report"),
    [
        (NetworkError("The model is gone."), NetworkError("The model is gone.").report()),
        (ValueError("password=hunter2"), RUN_FAILED),
        (TimeoutError("10.0.0.7 was silent"), RUN_FAILED),
        (StopIteration("odd"), RUN_FAILED),
        (SystemExit(1), RUN_FAILED),
        (KeyboardInterrupt(), RUN_FAILED),
        (Outside("of Exception"), RUN_FAILED),
        (asyncio.CancelledError("its own"), RUN_FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_failure_ends_the_log_with_what_a_client_may_see(
    error: BaseException, report: object
) -> None:
    runtime = runtime_with(Says(*say("Hel"), error))

    assert await told(runtime, run_input()) == [*say("Hel"), RunFailed(error=report)]  # type: ignore[arg-type]


async def test_one_failing_run_does_not_hurt_the_next() -> None:
    runtime = runtime_of(RuntimeError("boom"), say("fine"))

    failed = await told(runtime, run_input("a"))
    fine = await told(runtime, run_input("b"))

    assert isinstance(failed[-1], RunFailed)
    assert fine == [*say("fine"), RunFinished()]


async def test_an_agent_that_floods_its_log_is_ended() -> None:
    agent = Says(*[seen("again")] * 50)
    runtime = Runtime(agent, {}, MemoryBus(max_events=10))

    last = (await told(runtime, run_input()))[-1]

    assert isinstance(last, RunFailed)
    assert last.error.code == "LIMIT_EXCEEDED"


async def test_an_agent_nobody_has_is_refused_before_there_is_a_log() -> None:
    runtime = Runtime(Says(), {"known": Says()}, MemoryBus())

    with pytest.raises(AgentNotFound, match=r"'nobody' was not found.*known"):
        await runtime.start(run_input(agent="nobody"))
    with pytest.raises(NotFound):
        runtime.follow("r")


async def test_a_stage_that_refuses_keeps_the_agent_from_starting() -> None:
    async def refuse(events: Events, run: RunInput) -> Events:
        raise Refused("Not about that.")
        yield  # makes it a generator

    agent = Says(seen("never"))
    runtime = runtime_with(agent, stages=[refuse])

    log = await told(runtime, run_input())
    assert log == [RunFailed(error=Refused("Not about that.").report())]
    assert agent.began == 0


async def test_a_stage_that_refuses_a_call_after_a_while_keeps_its_action_from_starting() -> None:
    async def refuse(events: Events, run: RunInput) -> Events:
        async for event in events:
            if isinstance(event, ActionExecutionEnd):
                await asyncio.to_thread(bool)  # as one that asks a service
                raise Refused("Not that.")
            yield event

    payments: list[int] = []

    @action
    async def pay(amount: int) -> None:
        payments.append(amount)

    agent = DirectAgent(ScriptedAdapter(call("pay", {"amount": 5})))
    runtime = Runtime(agent, {}, MemoryBus(), stages=[refuse])

    log = await told(runtime, run_input(actions=[pay]))
    assert log[-1] == RunFailed(error=Refused("Not that.").report())
    assert not payments


async def test_the_first_stage_is_the_innermost() -> None:
    def tagging(tag: str):
        async def stage(events: Events, run: RunInput) -> Events:
            async with aclosing(events):
                async for event in events:
                    yield seen(f"{event.name}{tag}") if isinstance(event, Custom) else event

        return stage

    runtime = runtime_with(Says(seen("")), stages=[tagging("a"), tagging("b")])

    assert await told(runtime, run_input()) == [seen("ab"), RunFinished()]


async def test_the_log_of_an_attached_run_goes_with_its_reader() -> None:
    bus = MemoryBus()
    runtime = Runtime(Says(seen("done")), {}, bus)
    await told(runtime, run_input("attached"))
    await told(runtime, run_input("detached", detached=True))
    runtime.stop("attached")
    runtime.stop("detached")
    await runtime.aclose()

    assert [event async for batch in bus.read("detached") for event in batch.events]
    assert len(bus) == 1


async def test_a_run_that_ended_lets_go_of_its_request_though_nobody_stops_it() -> None:
    class Upload:
        """Something large in a request."""

    bus = MemoryBus()
    runtime = Runtime(Says(seen("done")), {}, bus)
    upload = Upload()
    released = weakref.ref(upload)
    run = await runtime.start(run_input(properties={"upload": upload}))
    del upload
    log = await log_of(runtime)
    await runtime.aclose()
    gc.collect()

    assert released() is None
    assert (run.thread_id, run.log_id) == ("t", "r")
    assert [event async for batch in run.follow() for event in batch.events] == log


async def test_the_log_of_an_attached_run_that_is_stopped_goes_too() -> None:
    bus = MemoryBus()
    runtime = Runtime(Says(forever), {}, bus)
    await runtime.start(run_input())
    runtime.stop("r")
    await runtime.aclose()

    assert len(bus) == 0


async def test_closing_ends_all_runs_with_a_last_event() -> None:
    agent = Says(forever)
    runtime = runtime_with(agent)
    for number in range(3):
        await runtime.start(run_input(str(number), detached=True))
    await runtime.aclose()

    last = [(await log_of(runtime, str(number)))[-1] for number in range(3)]
    assert [isinstance(it, RunFailed) and it.error.code for it in last] == ["RUN_INTERRUPTED"] * 3


async def hang(*asked: Any) -> Any:
    await forever()


@in_one_test("where", ["hook", "agents", "actions"])
async def test_what_hangs_before_a_run_begins_can_be_stopped(where: str) -> None:
    asked = asyncio.Event()

    async def ask(*given: Any) -> Any:
        asked.set()
        await forever()

    parts: dict[str, Any] = {
        "hook": {"hooks": Hooks(before_request=ask)},
        "actions": {"sources": [ask]},
    }
    agents: Any = ask if where == "agents" else {"a": Says()}
    runtime = Runtime(Says(), agents, MemoryBus(), **parts.get(where, {}))
    start = asyncio.create_task(runtime.start(run_input(agent="a")))
    await asked.wait()

    assert runtime.stop("r")
    with pytest.raises(Cancelled):
        await start
    await runtime.aclose()


async def test_a_hook_that_does_not_let_go_holds_up_only_itself() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def ask(run: RunInput) -> None:
        asked.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    runtime = runtime_with(Says(), hooks=Hooks(before_request=ask), max_runs=1)
    start = asyncio.create_task(runtime.start(run_input()))
    await asked.wait()
    runtime.stop("r")
    with pytest.raises(Cancelled):
        await start
    over.set()

    assert (await told(runtime, run_input("next")))[-1] == RunFinished()
    await runtime.aclose()


async def test_what_hangs_before_a_run_begins_is_ended_in_time() -> None:
    runtime = runtime_with(Says(), hooks=Hooks(before_request=hang), run_timeout=0.01)

    with pytest.raises(RunStalled):
        await runtime.start(run_input())


async def test_a_caller_whose_agents_do_not_come_is_told_in_time() -> None:
    runtime = Runtime(Says(), hang, MemoryBus(), run_timeout=0.01)

    with pytest.raises(RunStalled):
        await runtime.agents_for(Caller())


async def test_an_agent_that_does_not_end_is_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    over, begun = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    runtime = runtime_with(Says(stubborn), grace=0.01)
    await runtime.start(run_input(detached=True))
    await begun.wait()
    await runtime.aclose()
    over.set()

    assert "run:r does not end, and is abandoned" in caplog.text
    last = (await log_of(runtime))[-1]
    assert isinstance(last, RunFailed)
    assert last.error.code == "RUN_INTERRUPTED"


async def test_what_is_closed_takes_no_runs_until_it_is_opened() -> None:
    runtime = runtime_of(say("one"))
    await runtime.aclose()
    with pytest.raises(Interrupted):
        await runtime.start(run_input())
    runtime.open()

    assert (await told(runtime, run_input()))[-1] == RunFinished()


async def test_closing_ends_what_is_still_starting() -> None:
    asked = asyncio.Event()

    async def ask(run: RunInput) -> None:
        asked.set()
        await forever()

    runtime = runtime_with(Says(), hooks=Hooks(before_request=ask))
    start = asyncio.create_task(runtime.start(run_input()))
    await asked.wait()
    await runtime.aclose()

    assert start.done()
    assert isinstance(start.exception(), Cancelled)


async def test_closing_twice_and_closing_nothing_is_fine() -> None:
    runtime = runtime_of()
    await runtime.aclose()
    await runtime.aclose()


async def test_two_runtimes_share_nothing() -> None:
    one, two = runtime_of(say("one")), runtime_of(say("two"))
    logs = await asyncio.gather(told(one, run_input()), told(two, run_input()))

    assert logs == [[*say("one"), RunFinished()], [*say("two"), RunFinished()]]
