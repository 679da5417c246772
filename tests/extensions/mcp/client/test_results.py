"""A malformed part of what a server says costs none of its neighbours, and is named in the log."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from starlette.responses import Response

from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.extensions.mcp.client import McpServer
from tests.extensions.generative_ui.rogue import Rogue, serve_rogue
from tests.extensions.mcp.client.conftest import Ask, Pipes, tool
from tests.in_one_test import in_one_test, in_sum
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

Query = dict[str, Any]


@pytest.fixture
async def rogue(anyio_backend: str) -> AsyncGenerator[Rogue, None]:
    del anyio_backend
    async with serve_rogue() as rogue:
        yield rogue


LEFT_OUT: dict[str, Any] = {
    "the tool 'none' is left out: inputSchema: Field required": {"name": "none"},
    "the tool 'null' is left out: inputSchema: Input should be a valid dictionary": tool(
        "null", inputSchema=None
    ),
    "the tool 'list' is left out: inputSchema: Input should be a valid dictionary": tool(
        "list", inputSchema=[]
    ),
    "the tool no. 5 is left out: name: Field required": {"inputSchema": {"type": "object"}},
    "the tool no. 6 is left out: name: Input should be a valid string": {**tool(""), "name": 7},
    "the tool no. 7 is left out: it is no object": "tool",
    "the tool no. 8 is left out: it is no object": None,
    "a second tool 'look' is left out": tool("look", description="Another one."),
}
"""What the log says of tools that cannot be used, in the order of the list after `look`."""


async def test_tools_that_cannot_be_used_are_left_out_and_named_once(
    ask: Ask, pipes: Pipes, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ask(pipes(pages=[[tool("look"), *LEFT_OUT.values(), tool("after")]]))

    assert [*await asked.actions()] == ["look", "after"]
    await asked.source.aclose()  # the next run lists them again
    assert [*await asked.actions()] == ["look", "after"]
    assert caplog.messages == [f"MCP server 'bare.py': {problem}" for problem in LEFT_OUT]


def list_deep(rogue: Rogue) -> bytes:
    deep = b'{"properties":{"x":' * 2_000 + b"{}" + b"}}" * 2_000
    tools = b'{"name":"look","inputSchema":{}},{"name":"deep","inputSchema":%b}' % deep
    odd = b'{"name":"caf\xe9","inputSchema":{}},{"name":"after","inputSchema":{}}'
    return b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%b,%b]}}' % (rogue.last_id, tools, odd)


@in_one_test("way", ["json", "events"])
async def test_a_tool_that_the_package_cannot_read_costs_no_other(
    way: str, rogue: Rogue, ask: Ask
) -> None:
    def answer(_: Query) -> Response:
        if way == "events":
            return Response(b"data: %b\n\n" % list_deep(rogue), media_type="text/event-stream")
        return Response(b"\xef\xbb\xbf" + list_deep(rogue), media_type="application/json")

    rogue.answers["tools/list"] = answer
    asked = ask(McpServer(rogue.url))

    assert [*await asked.actions()] == ["look", "after"]
    assert [one.partition(": ")[2] for one in asked.source.list_problems()] == [
        "the tool 'deep' is left out: its schema is nested too deeply",
        "the tool 'caf\ufffd' is left out: its name is not UTF-8",
    ]


async def test_names_that_would_be_equal_are_numbered_and_call_their_own_tools(
    rogue: Rogue, ask: Ask
) -> None:
    names = ["user.get", "user/get", "user_get", "user_get_2", "x" * 63 + ".", "x" * 63 + "/"]
    rogue.answers["tools/list"] = lambda _: {"tools": [tool(name) for name in names]}
    rogue.answers["tools/call"] = lambda asked: {"content": [text(asked["name"])]}
    asked = ask(McpServer(rogue.url))

    found = [*await asked.actions()]

    assert found[:4] == ["user_get_3", "user_get_4", "user_get", "user_get_2"]
    assert found[4:] == ["x" * 63 + "_", "x" * 62 + "_2"]
    assert [await asked.do(name) for name in found] == names


DETAILS: dict[str, Any] = {
    "annotations.readOnlyHint": {"annotations": {"readOnlyHint": "sometimes", "title": "T"}},
    "annotations": {"annotations": "harmless"},
    "outputSchema": {"outputSchema": "a text"},
    "description": {"description": 7},
    "title": {"title": ["x"]},
    "icons": {"icons": [{"sizes": "any"}]},
    "_meta": {"_meta": "x"},
    "execution.taskSupport": {"execution": {"taskSupport": "perhaps"}},
}


async def test_a_tool_loses_the_details_that_are_malformed_and_no_more(
    ask: Ask, pipes: Pipes, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [tool(f"t{number}", **more) for number, more in enumerate(DETAILS.values())]

    found = await ask(pipes(pages=[tools])).actions()

    assert [*found] == [one["name"] for one in tools]
    said = [line.partition(" (")[0] for line in caplog.messages]
    assert said == [
        f"MCP server 'bare.py': the tool 't{number}' is used without {detail}"
        for number, detail in enumerate(DETAILS)
    ]


@in_one_test(
    "schema",
    [
        {},
        {"properties": {"q": {"type": "string"}}},
        {"type": ["object", "null"]},
        {"type": "object", "required": None},
        {"type": "object", "properties": {"q": {"type": "string"}, "required": ["q"]}},
        {"anyOf": [{"type": "object"}]},
    ],
)
async def test_the_schema_of_a_tool_is_not_judged_here(
    schema: Any, ask: Ask, pipes: Pipes, caplog: pytest.LogCaptureFixture
) -> None:
    action = (await ask(pipes(pages=[[tool("odd", inputSchema=schema)]])).actions())["odd"]

    assert schema.items() <= action.parameters.items()
    assert caplog.messages == []


async def test_an_output_schema_that_is_no_object_is_nobodys_business(
    ask: Ask, pipes: Pipes, caplog: pytest.LogCaptureFixture
) -> None:
    odd = tool("odd", outputSchema={"type": "string"})

    assert [*await ask(pipes(pages=[[odd, tool("look")]])).actions()] == ["odd", "look"]
    assert caplog.messages == []


async def test_pages_that_begin_again_are_read_once(
    rogue: Rogue, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    def page(params: Query) -> Query:
        number = int(params.get("cursor") or 0)
        return {"tools": [tool(f"t{number}")], "nextCursor": str((number + 1) % 3)}

    rogue.answers["tools/list"] = page

    assert [*await ask(McpServer(rogue.url)).actions()] == ["t0", "t1", "t2"]
    assert "its list of tools begins again, and has no end" in caplog.text
    assert "second tool" not in caplog.text


async def test_a_list_that_breaks_off_has_the_tools_before(
    rogue: Rogue, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    def page(params: Query) -> Query:
        return {} if "cursor" in params else {"tools": [tool("look")], "nextCursor": "2"}

    rogue.answers["tools/list"] = page

    assert [*await ask(McpServer(rogue.url)).actions()] == ["look"]
    assert "its list of tools breaks off" in caplog.text


async def test_health_names_what_is_left_out_of_the_operators_servers_and_of_no_other(
    rogue: Rogue,
) -> None:
    rogue.answers["tools/list"] = lambda _: {"tools": [{"name": "odd"}, tool("look")]}
    page = {"mcpServers": [{"endpoint": rogue.url}]}

    async with browsing(mcp_servers=[McpServer(rogue.url)]) as browser:
        await browser.run()
        ours = (await browser.ask("GET", "/health/ready")).json()
    async with browsing(mcp_allowed=[rogue.url]) as browser:
        await browser.run(forwardedProps=page)
        theirs = (await browser.ask("GET", "/health/ready")).json()

    problem = "the tool 'odd' is left out: inputSchema: Field required"
    label = McpServer(rogue.url).label
    assert ours["status"] == "ready"
    assert ours["failing"] == [f"tools: MCP server {label!r}: {problem}"]
    assert "failing" not in theirs


def text(words: str) -> Query:
    return {"type": "text", "text": words}


PICTURE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
NO_PICTURE = "[Here a block of the type 'image' was left out: "


@in_one_test(
    ("result", "value"),
    [
        (
            {"content": [text("a"), {"type": "hologram"}, text("b")]},
            "a\n[Here a block of the type 'hologram' was left out: MCP has no such block]\nb",
        ),
        (
            {"content": [text("a"), {"text": "b"}]},
            "a\n[Here a block of the type None was left out: MCP has no such block]",
        ),
        ({"content": ["a", text("b")]}, "a\nb"),
        ({"content": "a"}, "a"),
        ({"content": text("a")}, "a"),
        ({"content": None}, ""),
        ({"toolResult": "first form"}, "first form"),
        ({"toolResult": {"content": [text("a")]}}, "a"),
        ({}, ""),
        ({"structuredContent": {"x": 1}}, {"x": 1}),
        ({"structuredContent": [1, 2]}, [1, 2]),
        ({"structuredContent": {"x": 1}, "content": [{"type": "hologram"}]}, {"x": 1}),
        ({"content": [text("a")], "isError": "sometimes"}, "a"),
        ({"content": [text("a")], "_meta": 7}, "a"),
        ({"content": [{**text("a"), "annotations": {"priority": "high"}}]}, "a"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:"}}, text("a")]},
            "[Here a block of the type 'resource' was left out: "
            "resource.TextResourceContents.text: Field required]\na",
        ),
        (
            {"content": [{"type": "image", "data": "aGk="}]},
            f"{NO_PICTURE}mimeType: Field required]",
        ),
        ({"content": [{**PICTURE, "data": ""}]}, f"{NO_PICTURE}its data is empty]"),
        (
            {"content": [{**PICTURE, "data": "aGk"}]},
            f"{NO_PICTURE}its data is not base64 (Incorrect padding)]",
        ),
        (
            {"content": [{**PICTURE, "data": "data:image/png;base64,aG\nk="}]},
            {"content": [PICTURE]},
        ),
    ],
)
async def test_the_rest_of_a_result_is_used(
    result: Any, value: Any, rogue: Rogue, ask: Ask
) -> None:
    rogue.answers["tools/call"] = lambda _: result

    assert await ask(McpServer(rogue.url)).do("work") == value


async def test_a_failed_tool_with_an_odd_block_says_the_rest(rogue: Rogue, ask: Ask) -> None:
    failure = {"isError": True, "content": [{"type": "hologram"}, text("The disk is full.")]}
    rogue.answers["tools/call"] = lambda _: failure

    with pytest.raises(CopilotError, match="The disk is full"):
        await ask(McpServer(rogue.url)).do("work")


@in_one_test(
    "odd",
    [
        {"serverInfo": None},
        {"serverInfo": {"name": "x"}},
        {"serverInfo": {"name": 7, "version": 1}},
        {"capabilities": None},
        {"capabilities": {"tools": True}},
        {"capabilities": {"tools": []}},
        {"capabilities": []},
        {"capabilities": {"tools": {"listChanged": "perhaps"}, "experimental": []}},
        {"capabilities": {"tools": {}, "moon": "full"}},
        {"instructions": {"text": "Hi."}},
    ],
)
async def test_a_server_that_describes_itself_oddly_is_used(
    odd: Query, rogue: Rogue, ask: Ask
) -> None:
    rogue.answers["initialize"] = lambda params: {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "rogue", "version": "1"},
        **odd,
    }

    assert await ask(McpServer(rogue.url)).do("work") == "done"


ITEM = {"name": "a", "uri": "note:a"}
TEMPLATE = {"name": "t", "uriTemplate": "note:{id}"}
LISTS: dict[str, Query] = {
    "resources/list": {"resources": [{"name": "odd"}, {**ITEM, "size": "large"}]},
    "resources/templates/list": {"resourceTemplates": [7, TEMPLATE]},
    "resources/read": {"contents": [{"uri": "note:a"}, {"uri": "note:a", "text": "Hello."}]},
    "prompts/list": {"prompts": [{"name": 7}, {"name": "p", "arguments": "none"}]},
    "prompts/get": {
        "messages": [
            {"role": "robot", "content": text("no")},
            {"role": "user", "content": {"type": "hologram"}},
            {"role": "user", "content": [text("a"), text("b")]},
        ]
    },
}


@in_one_test(
    ("action", "values", "value"),
    [
        ("list_resources", {}, [{**ITEM}, TEMPLATE]),
        ("read_resource", {"uri": "note:a"}, "Hello."),
        ("list_prompts", {}, [{"name": "p"}]),
        (
            "get_prompt",
            {"name": "p"},
            [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        ),
    ],
)
async def test_the_other_resources_and_prompts_are_used(
    action: str, values: Query, value: Any, rogue: Rogue, ask: Ask
) -> None:
    offer_all(rogue)
    asked = ask(McpServer(rogue.url, name="notes", resources=["*"], prompts=["*"]))

    assert await asked.do(f"notes_{action}", **values) == value


async def test_a_server_without_templates_still_lists_its_resources(rogue: Rogue, ask: Ask) -> None:
    offer_all(rogue)
    rogue.answers["resources/templates/list"] = lambda _: refuse(rogue)
    asked = ask(McpServer(rogue.url, name="notes", resources=["*"]))

    assert await asked.do("notes_list_resources") == [ITEM]


def offer_all(rogue: Rogue) -> None:
    def initialize(params: Query) -> Query:
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "rogue", "version": "1"},
        }

    rogue.answers["initialize"] = initialize
    for method, result in LISTS.items():
        rogue.answers[method] = answer_with(result)


def answer_with(result: Any) -> Callable[[Query], Any]:
    return lambda _: result


def refuse(rogue: Rogue) -> Response:
    error = {"code": -32601, "message": "Method not found"}
    body = {"jsonrpc": "2.0", "id": rogue.last_id, "error": error}
    return Response(json.dumps(body), media_type="application/json")


def stream(rogue: Rogue, *events: str, newline: str = "\n") -> Response:
    """Return events, and the answer after them."""
    result = {"content": [text("done, after all")]}
    answer = json.dumps({"jsonrpc": "2.0", "id": rogue.last_id, "result": result})
    lines = "".join(f"{event}{newline}{newline}" for event in (*events, f"data: {answer}"))
    return Response(lines.encode(), media_type="text/event-stream")


@in_one_test(
    ("event", "newline"),
    in_sum(
        [
            "data: {oops",
            "data: [DONE]",
            'data: {"type": "ping"}',
            "data: null",
            'data: {"jsonrpc": "2.0", "method": 7}',
            'data: {"jsonrpc": "2.0", "method": "notifications/progress", "params": [1]}',
            'data: {"jsonrpc": "2.0", "method": "notifications/moon", "params": {"phase": "full"}}',
            'data: {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"x": 1}}',
            "event: moon\ndata: full",
            ": a comment",
        ],
        ["\n", "\r\n", "\r"],
    ),
)
async def test_a_malformed_event_does_not_cost_the_answer_behind_it(
    event: str, newline: str, rogue: Rogue, ask: Ask
) -> None:
    rogue.answers["tools/call"] = lambda _: stream(
        rogue, event.replace("\n", newline), newline=newline
    )

    assert await ask(McpServer(rogue.url)).do("work") == "done, after all"


@in_one_test(("kind", "lead"), [("application/json", ""), ("text/event-stream", "data: ")])
async def test_a_result_with_very_many_values_is_refused(
    kind: str, lead: str, rogue: Rogue, ask: Ask
) -> None:
    nested = ",".join(["[" * 220 + "]" * 220] * 8_000)

    def answer(_: Query) -> Response:
        result = f'{{"content":[],"structuredContent":{{"x":[{nested}]}}}}'
        body = f'{lead}{{"jsonrpc":"2.0","id":{rogue.last_id},"result":{result}}}\n\n'
        return Response(body, media_type=kind)

    rogue.answers["tools/call"] = answer

    with pytest.raises(LimitExceeded, match="more than 250,000 JSON values"):
        await ask(McpServer(rogue.url)).do("work")


async def test_an_event_that_is_left_out_is_named_once(
    rogue: Rogue, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    rogue.answers["tools/call"] = lambda _: stream(rogue, "data: {oops", "data: {oops")
    asked = ask(McpServer(rogue.url))

    await asked.do("work")
    await asked.do("work")

    named = [line for line in caplog.messages if "oops" in line]
    label = McpServer(rogue.url).label
    assert named == [f"MCP server {label!r}: an event is left out: it is no JSON ('{{oops')"]


async def test_a_stream_with_nothing_but_a_malformed_event_fails_with_it(
    rogue: Rogue, ask: Ask
) -> None:
    rogue.answers["tools/call"] = lambda _: Response(
        "data: {oops\n\n", media_type="text/event-stream"
    )

    with pytest.raises(CopilotError, match="an event is left out: it is no JSON"):
        await ask(McpServer(rogue.url)).do("work")
