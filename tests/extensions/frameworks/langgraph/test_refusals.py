"""Servers that refuse, break off or talk nonsense, played by a fake: real ones do it too rarely."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from tests.adapters.provider import CLOSE, END, HANG, HEAD, Provider, Step, piece, serving, whole
from tests.extensions.frameworks.langgraph.asking import state_of
from tests.wire_agui.http import Event, run_input, text_of
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

ASSISTANTS: list[Step] = [whole(json.dumps([{"assistant_id": "a-1"}]).encode())]
SCHEMAS: list[Step] = [whole({})]
NO_THREAD: list[Step] = [whole({"detail": "no such thread"}, status="404 Not Found")]
FOUND = [ASSISTANTS, SCHEMAS, NO_THREAD]
"""The answers before the first run, in a new thread."""

BEGUN = HEAD.replace(b"\r\n\r\n", b"\r\nlocation: /threads/t-1/runs/r-1/stream\r\n\r\n")


def frame(name: str, data: Any, id: int | str) -> bytes:
    """Return an event as the server writes it."""
    return b"event: %s\r\ndata: %s\r\nid: %s\r\n\r\n" % (
        name.encode(),
        json.dumps(data).encode(),
        str(id).encode(),
    )


def event(kind: str, id: int | str, **fields: Any) -> bytes:
    return frame("events", {"event": kind, "run_id": "m-1", "metadata": {}, **fields}, id)


def word(text: str, id: int | str) -> bytes:
    return event("on_chat_model_stream", id, data={"chunk": {"id": "m", "content": text}})


METADATA = frame("metadata", {"run_id": "r-1"}, 1)
LAST = event("on_chain_end", 99, run_id="r-1", data={})


def telling(*frames: bytes, begun: bytes = BEGUN) -> list[Step]:
    return [begun, *map(piece, frames), END]


async def events_of(
    provider: Provider,
    *scripts: Sequence[Step],
    fields: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Event]:
    """Return what a page gets from a server that answers so."""
    provider.answer(*scripts)
    agent = LangGraphAgent(provider.url, graph="g", **options)
    async with browsing(agents={"g": agent}) as browser:
        answer = await browser.run(agent="g", thread=str(uuid4()), **(fields or {}))
    return answer.events()


async def error_of(provider: Provider, *scripts: Sequence[Step], **options: Any) -> tuple[str, str]:
    """Return the code and the message of the error that a page gets."""
    [*_, last] = await events_of(provider, *scripts, **options)
    assert last["type"] == "RUN_ERROR"
    return last["code"], last["message"]


@pytest.fixture
async def provider(anyio_backend: str) -> Any:
    async with serving() as provider:
        yield provider


async def test_a_connection_that_the_server_had_closed_costs_no_answer(provider: Provider) -> None:
    events = await events_of(provider, [CLOSE], *FOUND, telling(METADATA, LAST))

    assert events[-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("401 Unauthorized", "AUTHENTICATION_ERROR"),
        ("403 Forbidden", "AUTHENTICATION_ERROR"),
        ("404 Not Found", "NOT_FOUND"),
        ("409 Conflict", "THREAD_BUSY"),
        ("422 Unprocessable Entity", "CONFIGURATION_ERROR"),
        ("429 Too Many Requests", "RATE_LIMITED"),
        ("500 Internal Server Error", "NETWORK_ERROR"),
    ],
)
@pytest.mark.parametrize("before", [[], FOUND], ids=["at first", "when asked to run"])
async def test_a_refusal_has_a_code_and_keeps_what_the_server_says(
    provider: Provider, before: list[Sequence[Step]], status: str, code: str
) -> None:
    refusal: list[Step] = [whole({"detail": "the key k-secret is bad"}, status=status)]
    found, message = await error_of(provider, *before, refusal, api_key="k-secret")

    assert found == code
    assert "secret" not in message
    assert message.count("The agent 'g' ") == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        whole(b"<html>Hello</html>", content_type="text/html"),
        whole(b"", status="307 Temporary Redirect", location="http://127.0.0.1:9/"),
        whole({"no": "list"}),
        whole(b"[1, null]"),
    ],
    ids=["a page", "a redirect", "an object", "numbers"],
)
async def test_what_is_no_langgraph_server_is_said_to_be_none(
    provider: Provider, nonsense: bytes
) -> None:
    code, message = await error_of(provider, [nonsense])

    assert code in ("CONFIGURATION_ERROR", "NOT_FOUND")
    assert "'g'" in message


@pytest.mark.parametrize(
    "body",
    [
        whole(b"<html></html>", content_type="text/html"),
        BEGUN + piece(b"event: events\r\ndata: {half\r\n\r\n") + END,
    ],
    ids=["no stream", "no JSON"],
)
async def test_an_answer_that_is_no_stream_of_events_is_an_error(
    provider: Provider, body: bytes
) -> None:
    code, message = await error_of(provider, *FOUND, [body], [whole({})])

    assert code == "CONFIGURATION_ERROR"
    assert message == "The agent 'g' answered with something that is not LangGraph's API."


async def test_events_that_are_unknown_or_no_json_cost_none_of_the_others(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [b"event: values\r\ndata: {half\r\n\r\n", frame("moon", {"phase": "full"}, 3)]
    told = telling(METADATA, word("Hel", 2), *odd, *odd[1:], word("lo", 4), LAST)

    assert text_of(await events_of(provider, *FOUND, told)) == "Hello"
    assert [line for line in caplog.messages if line.startswith("Agent 'g'")] == [
        "Agent 'g': an event is left out: it is not valid JSON",
        "Agent 'g': events of type 'moon' are left out",
    ]


async def test_what_may_be_a_part_of_a_call_is_not_left_out(provider: Provider) -> None:
    piece_of_call = {"id": "c-1", "name": "pay", "args": '{"sum": 1', "index": 0}
    chunk = {"chunk": {"id": "m", "content": "", "tool_call_chunks": [piece_of_call]}}
    call = event("on_chat_model_stream", 2, data=chunk)
    told = telling(METADATA, call, b"event: events\r\ndata: {half\r\n\r\n", LAST)

    code, _ = await error_of(provider, *FOUND, told, [whole({})])

    assert code == "CONFIGURATION_ERROR"


async def test_a_graph_is_looked_for_once_and_after_a_failure_again(provider: Provider) -> None:
    down: list[Step] = [whole({}, status="503 Service Unavailable")]
    told = telling(METADATA, word("Hi", 2), LAST)
    provider.answer(down, *FOUND, told, NO_THREAD, told)
    agent = LangGraphAgent(provider.url, graph="g")
    async with browsing(agents={"g": agent}) as browser:
        answers = [
            (await browser.run(agent="g", thread=str(uuid4()), run=f"r{n}")).events()
            for n in range(3)
        ]

    assert [answer[-1]["type"] for answer in answers] == [
        "RUN_ERROR",
        "RUN_FINISHED",
        "RUN_FINISHED",
    ]
    searches = [r.line for r in provider.requests if "/assistants/search" in r.line]
    assert len(searches) == 2


async def test_a_graph_that_has_changed_meanwhile_is_taken_as_it_is_now(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "copilot_runtime.extensions.frameworks.langgraph.agent._ASSISTANT_TTL", -1.0
    )
    old, new = ([whole({"output_schema": {"properties": {key: {}}}})] for key in ("old", "new"))
    told = telling(METADATA, frame("values", {"old": 1, "new": 2}, 2), LAST)
    provider.answer(*[ASSISTANTS, old, NO_THREAD, told], *[ASSISTANTS, new, NO_THREAD, told])
    async with browsing(agents={"g": LangGraphAgent(provider.url, graph="g")}) as browser:
        states = [
            state_of((await browser.run(agent="g", thread=str(uuid4()), run=run)).events())
            for run in ("r1", "r2")
        ]

    assert states == [{"old": 1}, {"new": 2}]


@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error"])
async def test_a_graph_without_a_schema_answers_all_the_same(
    provider: Provider, status: str
) -> None:
    none: list[Step] = [whole({"detail": "a type has no schema"}, status=status)]
    events = await events_of(
        provider, ASSISTANTS, none, NO_THREAD, telling(METADATA, word("Hi", 2), LAST)
    )

    assert text_of(events) == "Hi"


@pytest.mark.parametrize("id", ["lc_run--1", "run-m-1"], ids=["Python", "JavaScript"])
async def test_pieces_under_an_id_that_langchain_made_up_belong_to_the_message(
    provider: Provider, id: str
) -> None:
    made_up = event("on_chat_model_stream", 3, data={"chunk": {"id": id, "content": " two"}})
    events = await events_of(
        provider, *FOUND, telling(METADATA, word("one", 2), made_up, word(" three", 4), LAST)
    )

    starts = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
    assert (starts, text_of(events)) == (["m"], "one two three")


async def test_a_graph_gets_the_tools_of_the_page_in_the_form_that_models_take(
    provider: Provider,
) -> None:
    tool = {"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}
    told = telling(METADATA, LAST)

    await events_of(provider, *FOUND, told, fields={"tools": [tool]})

    sent = provider.requests[-1].body["input"]
    assert sent["tools"] == [{"type": "function", "name": "paint", "function": tool}]
    assert sent["tools"] == sent["copilotkit"]["actions"] == sent["ag-ui"]["tools"]


async def test_a_stream_that_a_proxy_ends_in_order_is_taken_up_where_it_was(
    provider: Provider,
) -> None:
    half = word(" two", 3).removesuffix(b"id: 3\r\n\r\n")
    going_on: list[Step] = [whole({"status": "running"})]
    rest = telling(word(" two", 3), word(" three", 4), LAST)
    events = await events_of(
        provider, *FOUND, telling(METADATA, word("one", 2), half), going_on, rest
    )

    assert text_of(events) == "one two three"
    again = provider.requests[-1]
    assert again.line.startswith("GET ")
    assert again.line.endswith("/runs/r-1/stream HTTP/1.1")
    assert again.headers["last-event-id"] == "2"


async def test_words_of_one_moment_come_once_when_their_stream_is_taken_up(
    provider: Provider,
) -> None:
    """`langgraph dev` gives them one id, and sends what is said meanwhile twice."""
    one, two, three = word("one", "1700-0"), word(" two", "1700-0"), word(" three", "1701-0")
    going_on: list[Step] = [whole({"status": "running"})]
    rest = telling(one, two, three, two, three, word(" four", "1702-0"), LAST)
    events = await events_of(provider, *FOUND, telling(METADATA, one), going_on, rest)

    assert text_of(events) == "one two three four"
    last = 2**64 - 1
    assert provider.requests[-1].headers["last-event-id"] == f"1699-{last}"


async def test_a_run_that_is_gone_when_it_is_taken_up_is_an_error(provider: Provider) -> None:
    gone: list[Step] = [whole({"detail": "no such run"}, status="404 Not Found")]
    code, message = await error_of(provider, *FOUND, telling(METADATA, word("one", 2)), gone)

    assert code == "INCOMPLETE_STREAM"
    assert message == "The connection to the agent 'g' broke off before the run ended."


async def test_a_stream_of_a_run_that_is_over_is_at_its_end(provider: Provider) -> None:
    over: list[Step] = [whole({"status": "success"})]
    events = await events_of(provider, *FOUND, telling(METADATA, word("Hi", 2)), over)

    assert text_of(events) == "Hi"
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_run_that_is_stopped_while_it_begins_is_cancelled_once_it_has_a_name(
    provider: Provider,
) -> None:
    begins = asyncio.Event()
    provider.answer(*FOUND, [begins, BEGUN, HANG], [whole({})])
    thread = str(uuid4())
    async with (
        browsing(agents={"g": LangGraphAgent(provider.url, graph="g")}) as browser,
        browser.running(agent="g", thread=thread) as answer,
    ):
        await provider.until_asked(4)
        await browser.ask("POST", f"/agent/g/stop/{thread}", {})
        begins.set()
        await provider.until_asked(5)
        await answer.rest()

    assert "/runs/r-1/cancel?" in provider.requests[-1].line


async def test_events_that_nobody_understands_cost_nothing_but_themselves(
    provider: Provider,
) -> None:
    strange = [
        frame("unheard/of", {}, 2),
        frame("events", None, 3),
        frame("events", {"event": "on_chat_model_stream"}, 4),
        frame("events", {"event": "on_chat_model_stream", "data": {"chunk": [1]}}, 5),
        event("on_chat_model_stream", 6, data={"chunk": {"id": 7, "content": {"a": None}}}),
        event("on_chat_model_stream", 7, data={"chunk": {"tool_call_chunks": [None, {"id": 1}]}}),
        event("on_custom_event", 8, name="copilotkit_manually_emit_message", data=None),
        event("on_custom_event", 9, name="copilotkit_manually_emit_tool_call", data={"id": 1}),
        event("on_tool_end", 10, data={"output": "text"}),
        event("on_chain_start", 11),
        frame(
            "values", {"messages": [1, {"id": 2}, {"id": "x", "type": "ai", "tool_calls": 3}]}, 12
        ),
        frame("updates", {"__interrupt__": "no list"}, 13),
        frame("values", [1], 14),
        b": heartbeat\r\n\r\n",
    ]
    events = await events_of(
        provider, *FOUND, telling(METADATA, word("a", 1), *strange, word("b", 20), LAST)
    )

    assert "ab" in text_of(events).replace('{"a":null}', "")
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_the_server_gets_the_persons_token_and_above_all_our_headers(
    provider: Provider,
) -> None:
    told = telling(METADATA, LAST)
    provider.answer(*FOUND, told)
    agent = LangGraphAgent(
        f"{provider.url}/", graph="g", api_key="ours", headers={"X-Tenant": "Ours"}
    )
    async with browsing(agents={"g": agent}) as browser:
        given = {"authorization": "Bearer token", "webhook": "http://evil"}
        theirs = {"x-tenant": "theirs", "x-api-key": "theirs", "x-trace": "1"}
        body = run_input(thread=str(uuid4()), forwardedProps=given)
        await browser.ask("POST", "/agent/g/run", body, theirs)

    for request in provider.requests:
        assert request.headers["authorization"] == "bearer token"  # the fake writes it small
        assert (request.headers["x-api-key"], request.headers["x-tenant"]) == ("ours", "ours")
    asked = provider.requests[-1]
    assert asked.headers["x-trace"] == "1"
    assert not {"webhook", "authorization"} & {*asked.body, *asked.body["input"]}


async def test_pieces_of_an_event_may_come_one_byte_at_a_time(provider: Provider) -> None:
    body = b"".join([METADATA, word("one", 2), word(" two", 3), LAST])
    bytewise = [piece(body[at : at + 1]) for at in range(len(body))]
    events = await events_of(provider, *FOUND, [BEGUN, *bytewise, END])

    assert text_of(events) == "one two"


async def test_a_server_that_takes_any_name_of_a_thread_gets_it(provider: Provider) -> None:
    known: list[Step] = [whole({"values": {}})]
    provider.answer(ASSISTANTS, SCHEMAS, known, telling(METADATA, LAST))
    async with browsing(agents={"g": LangGraphAgent(provider.url, graph="g")}) as browser:
        await browser.run(agent="g", thread="support-7")

    assert " /threads/support-7/runs/stream " in provider.requests[-1].line


async def test_a_server_that_wants_uuids_gets_one_made_of_the_name(provider: Provider) -> None:
    refusal: list[Step] = [whole({"detail": "no UUID"}, status="422 Unprocessable Entity")]
    told = telling(METADATA, LAST)
    provider.answer(ASSISTANTS, SCHEMAS, refusal, NO_THREAD, told, NO_THREAD, told)
    async with browsing(agents={"g": LangGraphAgent(provider.url, graph="g")}) as browser:
        for run in ("r1", "r2"):
            await browser.run(agent="g", thread="support-7", run=run)

    asked = [request.line.split("/")[2] for request in provider.requests[2:]]
    assert asked == ["support-7", *[asked[-1]] * 4]
    assert UUID(asked[-1]).version == 5


@pytest.mark.parametrize(
    ("url", "graph"), [("localhost:2024", "g"), ("", "g"), ("http://localhost:2024", "")]
)
def test_what_cannot_be_right_is_said_at_once(url: str, graph: str) -> None:
    with pytest.raises(ConfigurationFailed):
        LangGraphAgent(url, graph=graph)
