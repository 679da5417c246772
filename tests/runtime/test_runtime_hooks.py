"""What the hooks of an application are told about its runs, and what they may change."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import RunFailed, RunFinished
from copilot_runtime.api.hooks import ErrorContext, Hooks
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import (
    RUN_FAILED,
    AgentNotFound,
    NotFound,
    Refused,
    RunStalled,
    StoreFailed,
)
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.run import Run
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import Segment
from tests.in_one_test import in_one_test
from tests.runs import Says, forever, run_input, runtime_with, told

pytestmark = pytest.mark.anyio


class Diary:
    """Hooks that write down what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.hooks = Hooks(
            before_request=self.before, after_request=self.after, error=self.error, stop=self.stop
        )

    async def before(self, run: RunInput) -> None:
        self.calls.append(("before", run))

    async def after(self, run: RunInput, messages: Any) -> None:
        self.calls.append(("after", run, messages))

    async def error(self, error: BaseException, context: ErrorContext) -> None:
        self.calls.append(("error", error, context))

    async def stop(self, run: RunInput) -> None:
        self.calls.append(("stop", run))

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


async def finished(runtime: Runtime, run: RunInput) -> Any:
    """Run to the end, hooks included; return the last event."""
    log = await told(runtime, run)
    await runtime.aclose()
    return log[-1]


async def test_a_good_run_is_told_before_and_after_with_what_was_answered() -> None:
    diary, run = Diary(), run_input()
    await finished(runtime_with(Says(*say("Hello", id="m")), hooks=diary.hooks), run)

    answer = TextMessage(id="m", role="assistant", content="Hello")
    assert diary.calls == [("before", run), ("after", run, [answer])]


async def test_a_failed_run_is_told_once_with_everything_that_clients_do_not_see() -> None:
    diary, cause = Diary(), OSError("10.0.0.7 refused")
    error = RuntimeError("password=hunter2")
    error.__cause__ = cause
    agent = Says(error)
    runtime = Runtime(Says(), {"a": agent}, runtime_with(agent).bus, hooks=diary.hooks)
    last = await finished(runtime, run_input(agent="a", node="n", url="http://page"))

    assert last == RunFailed(error=RUN_FAILED)
    assert diary.names == ["before", "error"]
    _, told_error, context = diary.calls[1]
    assert told_error is error
    assert replace(context, latency=0.0) == ErrorContext(
        thread_id="t",
        run_id="r",
        operation="generateCopilotResponse",
        agent="a",
        node="n",
        url="http://page",
        source="agent",
        cause=cause,
    )
    assert context.latency > 0
    assert context.started_at is not None
    assert context.ended_at is not None
    assert (context.ended_at - context.started_at).total_seconds() == pytest.approx(
        context.latency, abs=1e-5
    )
    assert context.stack.startswith("OSError: 10.0.0.7 refused")
    assert "RuntimeError: password=hunter2" in context.stack


async def test_a_stopped_run_is_told_as_stopped_and_not_as_failed() -> None:
    diary, run = Diary(), run_input(detached=True)
    runtime = runtime_with(Says(forever), hooks=diary.hooks)
    await runtime.start(run)
    runtime.stop("r")
    await runtime.aclose()

    assert diary.calls == [("before", run), ("stop", run)]


async def test_a_run_out_of_time_is_told_as_failed() -> None:
    diary = Diary()
    await finished(runtime_with(Says(forever), hooks=diary.hooks, run_timeout=0.01), run_input())

    assert diary.names == ["before", "error"]
    assert isinstance(diary.calls[1][1], RunStalled)


async def test_a_request_that_cannot_start_is_told_once() -> None:
    diary = Diary()
    runtime = runtime_with(Says(), hooks=diary.hooks)
    with pytest.raises(AgentNotFound):
        await runtime.start(run_input(agent="nobody"))

    assert diary.names == ["before", "error"]


async def test_the_before_hook_may_change_the_request() -> None:
    diary = Diary()

    def before(run: RunInput) -> RunInput:
        return replace(run, properties={"user": "ada"})

    hooks = replace(diary.hooks, before_request=before)
    await finished(runtime_with(Says(), hooks=hooks), run_input())

    assert diary.calls == [("after", run_input(properties={"user": "ada"}), [])]


@in_one_test("error", [Refused("Not you."), PermissionError("ada")])
async def test_the_before_hook_may_refuse_the_request(error: Exception) -> None:
    def before(run: RunInput) -> None:
        raise error

    diary, agent = Diary(), Says()
    runtime = runtime_with(agent, hooks=replace(diary.hooks, before_request=before))
    with pytest.raises(type(error)):
        await runtime.start(run_input())

    assert (diary.names, agent.began) == (["error"], 0)
    with pytest.raises(NotFound):
        runtime.follow("r")


async def test_hooks_that_fail_change_nothing_for_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the hook is broken")

    hooks = Hooks(after_request=fail, error=fail, stop=fail)
    good = await finished(runtime_with(Says(), hooks=hooks), run_input())
    bad = await finished(runtime_with(Says(Refused("No.")), hooks=hooks), run_input())

    assert (good, bad) == (RunFinished(), RunFailed(error=Refused("No.").report()))
    assert caplog.text.count("RuntimeError: the hook is broken") == 2


async def test_a_slow_hook_does_not_hold_up_the_last_event() -> None:
    release = asyncio.Event()

    async def after(run: RunInput, messages: Any) -> None:
        await release.wait()

    runtime = runtime_with(Says(), hooks=Hooks(after_request=after))
    log = await told(runtime, run_input())
    release.set()
    await runtime.aclose()

    assert log == [RunFinished()]


@in_one_test("follow_up", ["client", "server"])
async def test_a_run_whose_end_cannot_be_stored_has_failed_for_all(follow_up: Any) -> None:
    class Full(MemoryThreads):
        async def write(self, segments: Sequence[Segment]) -> None:
            if any(segment.whole for segment in segments):
                raise StoreFailed("The disk is full.")
            await super().write(segments)

    ends: list[RunFinished | RunFailed] = []

    class Watch(RunObserver):
        def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
            del run, is_lost
            ends.append(event)

    diary, agent = Diary(), Says(*say("Hello", id="m"))
    bus = Recorder(MemoryBus(), Full())
    runtime = Runtime(agent, {}, bus, hooks=diary.hooks, observers=[Watch()])
    run = run_input(follow_up=follow_up, persist=True, detached=True)
    last = await finished(runtime, run)

    assert last.error.code == "STORE_FAILED"
    assert diary.names == ["before", "error"]
    assert ends == [last]
