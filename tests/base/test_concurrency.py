"""Sync work runs beside the event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from contextvars import ContextVar
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Caller, ChatRequest, RunInput
from copilot_runtime.api.events import Event, Events
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.messages import Message
from copilot_runtime.base.concurrency import ThreadPool
from copilot_runtime.base.errors import RUN_FAILED
from copilot_runtime.extensions.guardrails.guardrails import HttpGuardrail
from copilot_runtime.runtime import Runtime
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import Segment, StoredRun, ThreadPage, ThreadQuery
from tests.in_one_test import in_one_test, in_sum
from tests.security.conftest import KEY, RULES, asking, log_of, refusal

pytestmark = pytest.mark.anyio

NAME = ContextVar("NAME", default="")


async def test_work_of_a_pool_returns_or_raises_in_the_context_of_its_caller() -> None:
    pool = ThreadPool(2, "work")
    NAME.set("ann")

    assert await pool.run(NAME.get) == "ann"
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="SystemExit"):
        await pool.run(lambda: exit(1))


async def test_what_comes_while_all_threads_are_busy_waits_for_its_turn() -> None:
    pool, go_on, both = ThreadPool(2, "work"), threading.Event(), threading.Event()
    names: set[str] = set()

    def wait(number: int) -> int:
        names.add(threading.current_thread().name + str(threading.get_ident()))
        if len(names) == 2:
            both.set()
        assert go_on.wait(30)
        return number

    waiting = [asyncio.create_task(pool.run(lambda at=at: wait(at))) for at in range(20)]
    assert await asyncio.to_thread(both.wait, 30)
    waiting[10].cancel()
    await asyncio.wait((waiting[10],))
    go_on.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert [it for it in results if isinstance(it, int)] == [*range(10), *range(11, 20)]
    assert len(names) == 2


async def test_nothing_is_begun_of_what_nobody_awaits_any_more() -> None:
    pool, go_on, begun = ThreadPool(1, "work"), threading.Event(), list[str]()
    first = asyncio.create_task(pool.run(lambda: go_on.wait(30)))
    await asyncio.sleep(0)
    second = asyncio.create_task(pool.run(lambda: begun.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    go_on.set()

    assert await first
    await pool.run(lambda: begun.append("third"))
    assert begun == ["third"]


async def test_without_a_thread_to_be_had_the_work_is_refused_and_not_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ThreadPool(2, "work")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await pool.run(lambda: 1)
    assert await pool.run(lambda: 2) == 2


def test_a_loop_that_has_ended_gets_no_late_result() -> None:
    pool, go_on, done = ThreadPool(1, "work"), threading.Event(), threading.Event()

    async def leave() -> None:
        task = asyncio.create_task(pool.run(lambda: go_on.wait(30)))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    go_on.set()

    async def again() -> None:
        await pool.run(done.set)

    asyncio.run(again())
    assert done.is_set()


RUN = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [], "state": {}}
STATE = '{ loadAgentState(data: {threadId: "t", agentName: "a"}) { threadExists } }'


class Outside(BaseException):
    """What no `except Exception` catches."""


class Part:
    """An agent and a stage that raise an error in one place."""

    def __init__(self, place: str, error: BaseException) -> None:
        self._place = place
        self._error = error

    def fail(self, place: str) -> None:
        if place == self._place:
            raise self._error

    def check(self, run: RunInput) -> None:
        del run
        self.fail("check")

    async def run(self, run: RunInput) -> AsyncGenerator[Event, None]:
        del run
        self.fail("agent")
        return
        yield

    async def load_state(self, thread_id: str, caller: Caller) -> None:
        del thread_id, caller
        self.fail("load_state")

    def __call__(self, events: Events, run: RunInput) -> Events:
        del run
        self.fail("stage")
        return events


class Threads(MemoryThreads):
    def __init__(self, part: Part) -> None:
        super().__init__()
        self._part = part

    async def begin(self, run: RunInput) -> Sequence[Message]:
        self._part.fail("begin")
        return await super().begin(run)

    async def write(self, segments: Sequence[Segment]) -> None:
        self._part.fail("write")
        await super().write(segments)

    async def list(self, query: ThreadQuery) -> ThreadPage:
        self._part.fail("list")
        return await super().list(query)


def runtime(place: str, error: BaseException) -> CopilotRuntime:
    part = Part(place, error)

    def authenticate(_: Any) -> str:
        part.fail("authenticate")
        return "ann"

    async def authenticate_later(_: Any) -> str:
        part.fail("authenticate later")
        return "ann"

    def before(_: RunInput) -> None:
        part.fail("before")

    async def after(run: RunInput, messages: Sequence[Message]) -> None:
        del run, messages
        part.fail("after")

    def agents(caller: Caller) -> dict[str, Part]:
        del caller
        part.fail("agents")
        return {"a": part}

    return CopilotRuntime(
        ScriptedAdapter(say("Hello")),
        agents=agents,
        stages=[part],
        authenticate=authenticate_later if "later" in place else authenticate,
        threads=Threads(part),
        hooks=Hooks(before_request=before, after_request=after),
        settings=Settings(),
    )


ERRORS = [
    *(SystemExit(3), KeyboardInterrupt(), Outside("!"), BaseExceptionGroup("", [SystemExit(3)])),
    *(GeneratorExit(), asyncio.CancelledError()),
]


@in_one_test(
    ("error", "place"),
    in_sum(
        ERRORS,
        [
            *("authenticate", "authenticate later", "before", "after", "agents", "check", "agent"),
            *("stage", "load_state", "begin", "write", "list"),
        ],
    ),
)
def test_no_part_of_an_application_ends_the_server(place: str, error: BaseException) -> None:
    with TestClient(runtime(place, error).app()) as client:
        run = client.post("/graphql/agent/a/run", json=RUN)
        state = client.post("/graphql", json={"query": STATE})
        threads = client.get("/graphql/threads")
        health = client.get("/health")

    answers = "".join(answer.text for answer in (run, state, threads))
    assert ("RUN_ERROR" in run.text or run.status_code == 500) == (
        place not in ("after", "load_state", "list")
    )
    assert "The run failed" in answers or place == "after" or place == "write"
    assert type(error).__name__ not in answers
    assert health.status_code == 200


class Validator(httpx.AsyncBaseTransport):
    """A service of guardrails that answers once the adapter has failed."""

    def __init__(self, adapter: "FailingAdapter") -> None:
        self._adapter = adapter

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._adapter.failed.wait()
        return httpx.Response(200, json={"status": "allowed"})


@in_one_test("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_agent_behind_a_service_of_guardrails_does_not_end_the_server(
    error: BaseException,
) -> None:
    adapter = FailingAdapter(error)
    async with httpx.AsyncClient(transport=Validator(adapter)) as client:
        guardrail = HttpGuardrail("http://guardrails", http_client=client)
        events = await log_of(adapter, [guardrail], asking("Hello", rules=RULES, headers=KEY))

    assert refusal(events) == RUN_FAILED


class FailingAdapter(ScriptedAdapter):
    """An adapter that raises an error in place of an answer, and once more when it is closed."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.failed = asyncio.Event()
        self._error = error

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Event, None]:
        del request
        self.failed.set()
        raise self._error
        yield

    async def aclose(self) -> None:
        raise self._error


@in_one_test("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_thread_that_cannot_be_named_has_no_name(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def name(_: Sequence[StoredRun]) -> str:
        raise error

    store = MemoryThreads()
    runtime = Runtime(DirectAgent(ScriptedAdapter(say("Hi"))), {}, Recorder(MemoryBus(), store))
    conversations = Conversations(runtime, store, namer=name)
    run = await conversations.start(
        RunInput(thread_id="t", run_id="r", messages=(), persist=True, detached=True)
    )
    await run.ended
    await conversations.aclose()

    assert [record.getMessage() for record in caplog.records] == ["The thread t got no name"]
