"""What we write and read is what others say of the protocol: its own package for Python (1.0),
and a referee from outside.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from ag_ui.core import Event as TheirEvent
from ag_ui.core import RunAgentInput
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.api import Caller, RunInput
from copilot_runtime.api.events import (
    LAST,
    ActionExecutionStart,
    Event,
    RunFinished,
    TextMessageStart,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.jsontext import dumps, loads, replace_surrogates
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.transports.agui.decode import run_input
from copilot_runtime.transports.agui.encode import Dialect
from copilot_runtime.transports.agui.errors import Refusal
from copilot_runtime.transports.agui.handlers import AgentNames, Answers
from copilot_runtime.transports.agui.routes import Operation, from_envelope, from_path
from tests.in_one_test import in_one_test
from tests.orders import any_runs, encoded
from tests.referee import find_faults
from tests.threads.recorded import KEY, run_of, told, user

pytestmark = pytest.mark.anyio

THEIRS: TypeAdapter[Any] = TypeAdapter(TheirEvent)


@given(events=any_runs(), legacy=st.booleans())
@settings(database=None)
def test_every_event_we_write_is_one_of_the_protocol(events: Any, legacy: bool) -> None:
    for event in encoded(events, legacy=legacy):
        # their parser takes no half characters, which a browser joins
        THEIRS.validate_json(replace_surrogates(json.dumps(event, ensure_ascii=False)))


@given(events=any_runs(), legacy=st.booleans())
@settings(database=None)
def test_a_referee_from_outside_finds_no_fault_with_any_run(events: Any, legacy: bool) -> None:
    ended = events if isinstance(events[-1], LAST) else [*events, RunFinished()]
    ended = begin_each_once(ended)

    assert find_faults(encoded(ended, legacy=legacy)) == []


def begin_each_once(events: Sequence[Event]) -> list[Event]:
    """Leave out what begins a text or a call again, which clients take and the referee does not."""
    begun: set[str] = set()
    kept: list[Event] = []
    for event in events:
        if isinstance(event, TextMessageStart | ActionExecutionStart):
            id = event.message_id if isinstance(event, TextMessageStart) else event.call_id
            if id in begun:
                continue
            begun.add(id)
        kept.append(event)
    return kept


def test_the_referee_finds_faults() -> None:
    faults = find_faults([{"type": "TEXT_MESSAGE_START", "messageId": "m"}])

    assert [fault.partition(":")[0] for fault in faults] == ["AGUI001", "AGUI003", "AGUI103"]


TEXTS = st.text(max_size=10)
TOOL = {"name": "t", "description": "", "parameters": {"type": "object"}}


def decoded(body: Any) -> RunInput:
    return run_input(body, Caller(), agent=None, max_messages=10)


@given(text=TEXTS, state=st.dictionaries(TEXTS, TEXTS), props=st.dictionaries(TEXTS, TEXTS))
@settings(database=None)
def test_their_request_is_read_whole(text: str, state: Any, props: Any) -> None:
    theirs = RunAgentInput.model_validate(
        {
            "threadId": "t",
            "runId": "r",
            "messages": [{"id": "1", "role": "user", "content": text}],
            "tools": [TOOL],
            "context": [{"description": "who", "value": text}],
            "state": state,
            "forwardedProps": props,
            "protocolVersion": "1.0",
        }
    )
    run = decoded(theirs.model_dump(mode="json", by_alias=True))

    assert run.messages == [TextMessage(id="1", role="user", content=text)]
    assert (run.thread_id, run.run_id) == ("t", "r")
    assert run.agents["default"].state == state
    assert run.properties == props
    assert run.context[0].value == text
    assert run.actions[0].name == "t"


@in_one_test("status", ["resolved", "cancelled"])
def test_their_answers_to_interrupts_are_read(status: str) -> None:
    answer = {"interruptId": "i", "status": status, "payload": {"yes": True}}
    fields = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": []}
    given = {**fields, "state": {}, "forwardedProps": {}, "resume": [answer]}
    theirs = RunAgentInput.model_validate(given)

    (read,) = decoded(theirs.model_dump(mode="json", by_alias=True)).resume

    assert (read.interrupt_id, read.status, read.payload) == ("i", status, {"yes": True})


def answers_of(store: MemoryThreads) -> Answers:
    runtime = CopilotRuntime(ScriptedAdapter(), threads=store, settings=Settings())
    talks = runtime.conversations
    return Answers(
        talks,
        AgentNames(talks, chat=True),
        dialect=Dialect(),
        transcriber=None,
        info={},
    )


async def turns_of_others(runs: int) -> int:
    """Return how often another task had its turn while the events of a thread were read."""
    store = MemoryThreads()
    for number in range(runs):
        await told(store, run_of(run_id=f"r{number}", log_id=f"log{number}"))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    operation = Operation(name="read events", thread=KEY.id)
    await answers_of(store).of(operation, Caller(user=KEY.owner))
    task.cancel()
    return turns


async def test_a_long_thread_does_not_keep_others_waiting() -> None:
    assert await turns_of_others(200) > await turns_of_others(1)


async def test_the_events_of_a_thread_are_a_list_of_them_all() -> None:
    store = MemoryThreads()
    await told(store, run_of(log_id="one"))
    await told(store, run_of(run_id="r2", log_id="two", messages=[user(), user("u2", "\ud83d")]))
    operation = Operation(name="read events", thread=KEY.id)
    status, body = await answers_of(store).of(operation, Caller(user=KEY.owner))
    events = loads(dumps(body))["events"]

    assert status == 200
    assert [event["type"] for event in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ] * 2


@in_one_test(
    ("name", "sentence"),
    [
        ("subscribe", "Thread subscriptions are disabled"),
        ("annotate", "This server does not offer annotations"),
    ],
)
async def test_what_is_not_offered_is_named(name: str, sentence: str) -> None:
    operation = Operation(name=name)  # type: ignore[arg-type]  # parametrised
    status, body = await answers_of(MemoryThreads()).of(operation, Caller())

    assert status == 422
    assert body["error"].startswith(sentence)


async def test_a_thread_that_does_not_exist_has_no_events() -> None:
    operation = Operation(name="read events", thread="none")
    _, body = await answers_of(MemoryThreads()).of(operation, Caller())

    assert loads(dumps(body)) == {"events": []}


@in_one_test(
    ("method", "path", "operation"),
    [
        ("GET", "info", Operation(name="info")),
        ("HEAD", "info", Operation(name="info")),
        ("POST", "agent/a/run", Operation(name="run", agent="a")),
        ("POST", "agent/a%2Fb/stop/c%2Fd", Operation(name="stop", agent="a/b", thread="c/d")),
        ("POST", "agent/run/run", Operation(name="run", agent="run")),
        ("GET", "threads/messages/messages", Operation(name="read messages", thread="messages")),
        ("DELETE", "threads/clear", Operation(name="delete thread", thread="clear")),
        ("POST", "threads/clear", Operation(name="clear threads")),
        ("GET", "threads/100%2525/state", Operation(name="read state", thread="100%25")),
    ],
)
def test_a_path_says_what_is_asked(method: str, path: str, operation: Operation) -> None:
    assert from_path(method, path) == operation


def test_a_query_is_read_with_its_empty_values_and_its_unicode() -> None:
    found = from_path("GET", "threads", "agentId=%C3%A4+b&cursor=&limit=5")

    assert found.query == {"agentId": "ä b", "cursor": "", "limit": "5"}


@in_one_test(
    "path", ["", "infos", "agent", "agent//run", "agent/a", "threads//messages", "threads/a/b/c"]
)
def test_any_other_path_is_not_found(path: str) -> None:
    with pytest.raises(Refusal) as refused:
        from_path("GET", path)

    assert (refused.value.status, refused.value.body) == (404, {"error": "Not found"})


def test_a_resource_in_an_envelope_is_the_path_it_names() -> None:
    params = {"path": "/threads/a%2Fb?x=1", "httpMethod": "PATCH"}
    envelope = {"method": "resource/request", "params": params, "body": {"name": "n"}}

    assert from_envelope(envelope) == Operation(
        name="change thread", thread="a/b", query={"x": "1"}, body={"name": "n"}
    )


@in_one_test(
    "path",
    ["/agent/a/run", "agent/a/run", "/info", "info/", "/agent/a/stop/t", "transcribe", "/", "?x"],
)
def test_a_resource_is_never_a_run(path: str) -> None:
    params = {"path": path, "httpMethod": "POST"}

    with pytest.raises(Refusal, match="Unsupported resource"):
        from_envelope({"method": "resource/request", "params": params})


@in_one_test("params", [None, [], {}, {"agentId": ""}, {"agentId": 5}])
def test_a_run_in_an_envelope_names_its_agent(params: Any) -> None:
    with pytest.raises(Refusal, match="agentId"):
        from_envelope({"method": "agent/run", "params": params, "body": {}})
