"""Requests that are too large, too deep, wrongly written or odd, and what is said to each."""

import json
from typing import Any

import pytest

from copilot_runtime import Events, RunInput, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import AgentState
from copilot_runtime.api.messages import ResultMessage
from tests.in_one_test import in_one_test, in_sum
from tests.wire_agui.http import Browser, run_input, text_of, user
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

RUN = "/agent/default/run"
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


async def alive(browser: Browser) -> bool:
    return (await browser.run(thread="after")).types()[-1] == "RUN_FINISHED"


@in_one_test("path", [RUN, "/agent/default/connect", "", "/threads/t/archive"])
async def test_a_body_that_is_too_large_is_refused_in_json(path: str) -> None:
    settings = Settings(threads="memory", max_body_bytes=1000)
    async with browsing(settings=settings) as browser:
        answer = await browser.ask("POST", path, run_input(messages=[user("x" * 2000)]))
        assert await alive(browser)

    assert answer.status == 413
    assert answer.headers["content-type"].startswith("application/json")
    assert "larger than 1000 bytes" in answer.body.decode()


async def test_sixteen_megabytes_are_the_limit_unless_it_is_set() -> None:
    async with browsing(Parrot("Hello")) as browser:
        fits = await browser.run(messages=[user("x" * (15 * 1024 * 1024))])
        too_large = await browser.run(messages=[user("x" * (16 * 1024 * 1024))])

    assert text_of(fits.events()) == "Hello"
    assert too_large.status == 413


async def test_an_empty_result_beside_a_real_one_does_not_reach_the_run() -> None:
    runs: list[RunInput] = []

    async def listen(run: RunInput) -> Events:
        runs.append(run)
        yield AgentState(agent="it", state={})

    results = [("c1", ""), ("c1", "12:00"), ("c2", "")]
    messages = [
        user(),
        {"id": "a1", "role": "assistant", "toolCalls": [CALL, {**CALL, "id": "c2"}]},
        *(
            {"id": f"t{at}", "role": "tool", "toolCallId": call, "content": result}
            for at, (call, result) in enumerate(results)
        ),
    ]
    async with browsing(agents={"it": listen}) as browser:
        await browser.run(agent="it", messages=messages)

    found = [one for one in runs[0].messages if isinstance(one, ResultMessage)]
    assert [(one.call_id, one.result) for one in found] == results[1:]


WRONG: list[tuple[str, Any, str]] = [
    ("nothing", b"", "the body must be an object"),
    ("no JSON", b"{", ""),
    ("not a number", json.dumps(run_input(state=float("nan"))).encode(), ""),
    ("infinity", json.dumps(run_input(state=float("inf"))).encode(), ""),
    ("not UTF-8", b'{"threadId": "\xff"}', ""),
    ("a list", [], "the body must be an object"),
    ("a text", "run", "the body must be an object"),
    ("null", b"null", "the body must be an object"),
    ("no thread", {"runId": "r"}, "messages must be a list"),
    ("thread of a number", run_input(thread=5), "threadId must be a string"),
    ("empty thread", run_input(thread=""), "threadId must have 1 to 500 characters"),
    ("huge thread", run_input(thread="x" * 501), "threadId must have 1 to 500 characters"),
    ("null thread", run_input(thread=None), "threadId must be a string"),
    ("huge run", run_input(run="x" * 10_000), "runId must have 1 to 500 characters"),
    ("messages of an object", run_input(messages={}), "messages must be a list"),
    ("message of a text", run_input(messages=["Hi"]), "messages[0]"),
    ("no role", run_input(messages=[{"id": "1"}]), "messages[0].role"),
    ("odd role", run_input(messages=[{"id": "1", "role": "boss"}]), "messages[0].role"),
    ("no id", run_input(messages=[{"role": "user", "content": "Hi"}]), "messages[0].id"),
    ("content of a number", run_input(messages=[user(5)]), "messages[0].content"),
    ("part of a text", run_input(messages=[user(["Hi"])]), "messages[0].content[0]"),
    ("part without a type", run_input(messages=[user([{}])]), "messages[0].content[0]"),
    (
        "part without a source",
        run_input(messages=[user([{"type": "image"}])]),
        "messages[0].content[0].source",
    ),
    ("no call id", run_input(messages=[{"id": "1", "role": "tool"}]), "messages[0].toolCallId"),
    (
        "calls of an object",
        run_input(messages=[user(), {"id": "1", "role": "assistant", "toolCalls": {}}]),
        "messages[1].toolCalls",
    ),
    (
        "call without a function",
        run_input(messages=[{"id": "1", "role": "assistant", "toolCalls": [{"id": "c"}]}]),
        "messages[0].toolCalls[0].function",
    ),
    (
        "activity without a type",
        run_input(messages=[{"id": "1", "role": "activity", "content": {}}]),
        "messages[0].activityType",
    ),
    ("tools of an object", run_input(tools={}), "tools must be a list"),
    ("tools of null", run_input(tools=None), "tools must be a list"),
    ("tool of a text", run_input(tools=["f"]), "tools[0] must be an object"),
    ("tool without a name", run_input(tools=[{}]), "tools[0].name"),
    ("context of an object", run_input(context={}), "context must be a list"),
    ("context of a text", run_input(context=["c"]), "context[0] must be an object"),
    ("props of a list", run_input(forwardedProps=[1]), "forwardedProps must be an object"),
    ("resume of an object", run_input(resume={}), "resume must be a list"),
    ("resume of a text", run_input(resume=["yes"]), "resume[0] must be an object"),
    ("resume without an id", run_input(resume=[{}]), "resume[0].interruptId"),
]


@in_one_test(("row", "operation"), in_sum(WRONG, ["run", "connect", "suggest"]))
async def test_a_wrong_request_is_told_which_field_is_wrong(
    row: tuple[str, Any, str], operation: str
) -> None:
    _, body, said = row
    model = Parrot()
    async with browsing(model) as browser:
        answer = await browser.ask("POST", f"/agent/default/{operation}", body)
        assert model.requests == []
        assert await alive(browser)

    assert answer.status == 400
    assert answer.json()["error"] == "Invalid request body"
    assert said in answer.json()["details"]


ODD: list[tuple[str, dict[str, Any]]] = [
    ("null state", {"state": None}),
    ("state of a list", {"state": [1]}),
    ("null props", {"forwardedProps": None}),
    ("unknown fields", {"future": {"a": 1}, "parentRunId": None}),
    ("no messages", {"messages": []}),
    ("a tool without parameters", {"tools": [{"name": "f", "description": "d"}]}),
    ("a tool with null parameters", {"tools": [{"name": "f", "parameters": None}]}),
    ("a thousand tools", {"tools": [{"name": f"f{n}", "parameters": {}} for n in range(1000)]}),
    ("two tools of one name", {"tools": [{"name": "f"}, {"name": "f"}]}),
    ("a context without words", {"context": [{"value": "v"}]}),
    ("a context of an object", {"context": [{"description": "d", "value": {"a": 1}}]}),
    ("an id twice", {"messages": [user("A"), user("B")]}),
    (
        "a result nobody asked for",
        {"messages": [user(), {"id": "x", "role": "tool", "toolCallId": "no", "content": "5"}]},
    ),
    (
        "a call nobody answered",
        {"messages": [user(), {"id": "a", "role": "assistant", "toolCalls": [CALL]}]},
    ),
    ("null content", {"messages": [{"id": "a", "role": "assistant", "content": None}]}),
    ("empty text", {"messages": [user("")]}),
    ("no parts", {"messages": [user([])]}),
    ("an empty id", {"messages": [user("Hi", "")]}),
    ("a huge id", {"messages": [user("Hi", "x" * 100_000)]}),
    ("a NUL in the text", {"messages": [user("a\0b")]}),
    ("a NUL in an id", {"messages": [user("Hi", "a\0b")]}),
    ("half a character in the text", {"messages": [user("\ud83c")]}),
    ("half a character in an id", {"messages": [user("Hi", "\ud83c")]}),
    ("half a character in the thread", {"thread": "t\ud83c"}),
    ("half a character in the run", {"run": "r\udf4e"}),
    ("half a character in a key", {"state": {"\ud83c": "\udf4e"}}),
    ("a number beyond 64 bits", {"state": {"n": 2**70}}),
    ("cancelled resume", {"resume": [{"interruptId": "i", "status": "cancelled"}]}),
    ("odd tool choice", {"forwardedProps": {"toolChoice": {"type": 5}}}),
    ("odd command", {"forwardedProps": {"command": "resume"}}),
]


@in_one_test(("fields", "store"), in_sum([row[1] for row in ODD], ["memory", "sqlite"]))
async def test_an_odd_request_is_answered_and_its_thread_can_be_read(
    fields: dict[str, Any], store: str, tmp_path: Any
) -> None:
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    async with browsing(Parrot("Hello"), settings=Settings(threads=place)) as browser:
        answer = await browser.run(**fields)
        thread = answer.events()[0]["threadId"]
        replayed = await browser.connect(thread)

    assert text_of(answer.events()) == "Hello"
    assert answer.types()[-1] == "RUN_FINISHED"
    assert text_of(replayed.events()) == "Hello"


class Echo:
    """An agent that gives the state back."""

    async def run(self, run: RunInput) -> Events:
        yield AgentState(agent="echo", state=run.agents["echo"].state)
        for event in say("Here it is", id=run.run_id):
            yield event


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@in_one_test("store", ["memory", "sqlite"])
@in_one_test("depth", [100, 250, 500, 900, 1015, 5000, 100_000])
async def test_deep_json_is_answered_or_refused_and_its_thread_can_be_read(
    depth: int, store: str, tmp_path: Any
) -> None:
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    deep = b"[" * depth + b"]" * depth
    body = json.dumps(run_input(state="DEEP")).encode().replace(b'"DEEP"', deep)
    settings = Settings(threads=place)
    async with browsing(Parrot("Hello"), agents={"echo": Echo()}, settings=settings) as browser:
        plain = await browser.ask("POST", RUN, body)
        echoed = await browser.ask("POST", "/agent/echo/run", body)
        replayed = await browser.connect(agent="echo")
        read = [
            await browser.ask("GET", f"/threads/t/{what}")
            for what in ("messages", "events", "state")
        ]
        single = await browser.ask("POST", "", body)
        assert await alive(browser)

    for answer in (plain, echoed):
        if answer.status == 400:
            assert answer.json()["error"] == "Invalid request body"
        else:
            assert answer.types()[-1] in ("RUN_FINISHED", "RUN_ERROR")
    assert single.status in (200, 400)
    assert replayed.status == 200
    assert [answer.status for answer in read] == [200] * 3


@in_one_test("setting", ["max_messages", "max_body_bytes", "max_items", "max_values"])
async def test_the_log_names_the_setting_of_a_limit_that_refused_a_request(
    setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.model_validate({"threads": "memory", setting: 1})
    async with browsing(settings=settings) as browser:
        parts = [{"type": "text", "text": text} for text in "ab"]
        answer = await browser.run(messages=[user(parts, "1"), user("b", "2")])

    assert answer.status == 413
    assert f"Raise {setting} in the settings" in caplog.text


async def test_too_many_messages_are_too_many() -> None:
    settings = Settings(threads="memory", max_messages=3)
    async with browsing(settings=settings) as browser:
        answer = await browser.run(messages=[user(str(n), str(n)) for n in range(4)])

    assert answer.status == 413
    assert answer.json()["details"] == "The conversation has 4 messages; 3 are allowed."


@in_one_test(
    ("method", "path", "body"),
    [
        ("PATCH", "/threads/t", None),
        ("PATCH", "/threads/t", []),
        ("PATCH", "/threads/t", {"name": 5}),
        ("PATCH", "/threads/t", {"name": "x" * 501}),
        ("PATCH", "/threads/t", {"name": "a\0b"}),
        ("PATCH", "/threads/t", {"archived": "yes"}),
        ("PATCH", "/threads/t", b"{"),
        ("GET", "/threads?limit=many", None),
        ("GET", "/threads?limit=-1", None),
        ("GET", "/threads?limit=%D9%A1", None),
        ("GET", "/threads?limit=99999999999999999999", None),
        ("GET", "/threads?cursor=x", None),
        ("GET", "/threads?cursor=%00", None),
        ("GET", "/threads?cursor=1.1.1", None),
    ],
)
@in_one_test("store", ["memory", "sqlite"])
async def test_a_thread_is_not_changed_or_listed_by_what_makes_no_sense(
    method: str, path: str, body: Any, store: str, tmp_path: Any
) -> None:
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    async with browsing(settings=Settings(threads=place)) as browser:
        await browser.run()
        before = (await browser.ask("GET", "/threads")).json()
        answer = await browser.ask(method, path, body)
        after = (await browser.ask("GET", "/threads")).json()

    said = answer.json()
    assert answer.status == 400
    if method == "GET":
        assert said["error"] == "invalid_request"
        assert f"The query parameter {path.partition('?')[2].partition('=')[0]}" in said["message"]
    else:
        assert said["error"] == "Invalid request body"
        assert said["details"]
    assert after == before


@in_one_test("store", ["memory", "sqlite"])
async def test_a_list_of_threads_is_read_page_by_page(store: str, tmp_path: Any) -> None:
    place = "memory" if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    async with browsing(settings=Settings(threads=place)) as browser:
        for number in range(7):
            await browser.run(thread=f"t{number}")
        pages: list[list[str]] = []
        cursor = ""
        while True:
            found = (await browser.ask("GET", f"/threads?limit=3&cursor={cursor}")).json()
            pages.append([thread["id"] for thread in found["threads"]])
            cursor = found["nextCursor"]
            if cursor is None:
                break

    assert pages == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]


async def test_the_messages_of_a_thread_can_be_sent_back_to_a_run() -> None:
    model = Parrot("Five")
    result = {"id": "x", "role": "tool", "toolCallId": "c1", "content": "5"}
    asked = {"id": "a", "role": "assistant", "toolCalls": [CALL]}
    async with browsing(model) as browser:
        await browser.run(run="r1", messages=[user(), asked, result])
        sent = list(model.requests[-1].messages)
        read = (await browser.ask("GET", "/threads/t/messages")).json()["messages"]
        answer = await browser.run(run="r2", messages=[*read, user("And now?", "u2")])

    assert read[1]["toolCalls"] == [{"id": "c1", "name": "f", "args": "{}"}]
    assert answer.types()[-1] == "RUN_FINISHED"
    assert list(model.requests[-1].messages)[: len(sent)] == sent
