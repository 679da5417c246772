"""Tools of MCP servers as tools of a catalog."""

import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.tools.catalog import ToolResult
from copilot_runtime.extensions.tools.catalog import catalog as module
from tests.adapters.provider import HANG, Provider, whole
from tests.extensions.mcp.client import bare
from tests.extensions.mcp.client.servers import COMMAND, Served, serve
from tests.extensions.tools.catalog.conftest import RUN, Write, call_tool
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(anyio_backend: str) -> AsyncGenerator[Served, None]:
    del anyio_backend
    async with serve() as served:
        yield served


def _tool(mcp: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"tool": {"endpoint": {"mcp": mcp}, **fields}})


async def test_a_tool_is_what_its_server_says_with_the_words_of_the_file(
    write: Write, served: Served
) -> None:
    catalog = write(
        _tool(
            {"server": served.url, "tool": "mcpEcho", "headers": {"x-key": "${secret:API_KEY}"}},
            purpose="Say it again.",
            parameters={"text": "What is said."},
        )
    )

    (action,) = await catalog.actions(RUN)
    result = await call_tool(catalog, text="hello")

    assert result == ToolResult("echo hello")
    assert action.description == "PURPOSE: Say it again."
    assert action.parameters["properties"]["text"]["description"] == "What is said."
    assert served.headers[-1]["x-key"] == "s3cret-key"


async def test_a_hint_says_whether_it_may_be_called_twice(write: Write, served: Served) -> None:
    (action,) = await write(_tool({"server": served.url, "tool": "find"})).actions(RUN)
    assert (action.is_idempotent, action.description) == (True, "Find places.")


async def test_what_a_tool_refuses_is_an_error_of_the_call(write: Write, served: Served) -> None:
    result = await call_tool(write(_tool({"server": served.url, "tool": "boom"})))
    assert "The disk is full." in (result.error or "")


@pytest.mark.stalls(reason="The server that sends 10 MB runs in the test itself.")
async def test_10_mb_are_an_error_of_the_call(write: Write, served: Served) -> None:
    assert (await call_tool(write(_tool({"server": served.url, "tool": "large"})))).error


async def test_a_tool_that_never_ends_is_cancelled(write: Write, served: Served) -> None:
    catalog = write(_tool({"server": served.url, "tool": "forever"}, timeout=1))
    await catalog.actions(RUN)  # connecting is not limited by it
    while not served.cancelled.is_set():  # the second may end before a busy machine has begun
        assert "1 s" in ((await call_tool(catalog)).error or "")


async def test_a_server_may_be_a_command(write: Write) -> None:
    server = {"server": COMMAND, "tool": "variable", "env": {"KEY": "${secret:API_KEY}"}}
    catalog = write(_tool(server, arguments={"name": "KEY"}))
    assert await call_tool(catalog) == ToolResult("***")


async def test_tools_of_one_server_share_its_process(write: Write, tmp_path: Any) -> None:
    server = {"server": bare.COMMAND, "env": {"COUNT": str(tmp_path / "calls")}}
    catalog = write(json.dumps({name: {"endpoint": {"mcp": server}} for name in ("work", "look")}))

    answers = [(await call_tool(catalog, name)).content for name in ("work", "look")]

    assert answers[0].split()[0] == answers[1].split()[0]


async def test_a_tool_that_the_server_does_not_have_is_left_out(
    write: Write, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = write(_tool({"server": served.url, "tool": "none"}))

    assert await catalog.actions(RUN) == []

    refusal = f"The MCP server {urlsplit(served.url).netloc!r} has no tool 'none'."
    assert refusal in caplog.text
    assert (await call_tool(catalog)).error == refusal


async def test_a_server_that_hangs_delays_one_run(
    write: Write, server: Provider, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOAD_TIMEOUT", 0.05)
    server.answer([HANG])
    slow = {"endpoint": {"mcp": {"server": server.url, "tool": "find"}}}
    quick = {"endpoint": {"function": "os.path:basename"}}
    catalog = write(json.dumps({"slow": slow, "quick": quick}))

    assert [action.name for action in await catalog.actions(RUN)] == ["quick"]
    monkeypatch.setattr(module, "LOAD_TIMEOUT", 1000)
    assert [action.name for action in await catalog.actions(RUN)] == ["quick"]


async def test_a_call_asks_no_other_server(write: Write, server: Provider) -> None:
    server.answer([HANG])
    slow = {"endpoint": {"mcp": {"server": server.url, "tool": "find"}}}
    tool = {"endpoint": {"function": "os.path:basename"}}
    catalog = write(json.dumps({"slow": slow, "tool": tool}))

    assert await call_tool(catalog, p="a/b") == ToolResult("b")
    assert server.requests == []


async def test_a_server_that_hangs_cannot_be_called(
    write: Write, server: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOAD_TIMEOUT", 0.05)
    server.answer([HANG])
    catalog = write(_tool({"server": server.url, "tool": "find"}))

    assert (await call_tool(catalog)).error == "It did not answer within 0.05 s."
    (seen,) = await catalog.check(RUN)
    assert seen.detail == "It did not answer within 0.05 s."


async def test_the_server_describes_the_tool(write: Write, served: Served) -> None:
    (seen,) = await write(_tool({"server": served.url, "tool": "find"})).check(RUN)
    assert (seen.is_reachable, seen.detail) == (True, f"{urlsplit(served.url).netloc} has find")


@in_one_test(
    ("mcp", "message"),
    [
        ({"server": "nowhere"}, "'nowhere' of an MCP server is not an address"),
        ({"server": []}, "tool.endpoint.mcp.server"),
        ({"server": "http://a/", "headers": {"x": "${secret:NONE}"}}, "The secret 'NONE'"),
    ],
)
def test_a_server_that_can_never_be_reached_is_an_error_at_the_start(
    write: Write, mcp: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationFailed, match=r"tools\.yml:1") as caught:
        write(_tool(mcp))
    assert message in caught.value.message


QUERY = """
query Orders($of: ID!, $first: Int = 3, $tags: [String!]!, $by: OrderBy, $open: Boolean) {
  orders(of: $of, first: $first, tags: $tags, by: $by, open: $open) { id }
}
"""


def _write_graphql(graphql: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"tool": {"endpoint": {"graphql": graphql}, **fields}})


async def test_the_variables_are_the_parameters(write: Write) -> None:
    catalog = write(
        _write_graphql({"url": "http://a/", "query": QUERY}, parameters={"of": "Whose."})
    )

    (action,) = await catalog.actions(RUN)

    assert action.is_idempotent
    assert action.parameters == {
        "type": "object",
        "properties": {
            "of": {"type": "string", "description": "Whose."},
            "first": {"type": "integer", "default": 3},
            "tags": {"type": "array", "items": {"type": "string"}},
            "by": {"description": "A value of the type OrderBy."},
            "open": {"type": "boolean"},
        },
        "required": ["tags", "of"],
    }


async def test_a_query_is_sent_with_its_variables(write: Write, server: Provider) -> None:
    server.answer([whole({"data": {"orders": [{"id": 1}, {"id": 2}]}})])
    catalog = write(
        _write_graphql(
            {
                "url": server.url,
                "query": QUERY,
                "result": "orders[].id",
                "headers": {"X-Key": "${secret:API_KEY}"},
            },
            arguments={"of": "${caller:user}"},
        )
    )

    assert await call_tool(catalog, tags=["x"]) == ToolResult("[1,2]")
    assert server.requests[0].body == {"query": QUERY, "variables": {"tags": ["x"], "of": "ann"}}
    assert server.requests[0].headers["x-key"] == "s3cret-key"


async def test_a_mutation_may_not_be_sent_twice(write: Write, server: Provider) -> None:
    server.answer([whole(b"", status="503 Service Unavailable", retry_after="0")])
    catalog = write(_write_graphql({"url": server.url, "query": "mutation { pay }"}))

    assert (await call_tool(catalog)).error == "HTTP 503"
    assert len(server.requests) == 1


@in_one_test(
    ("answer", "message"),
    [
        (
            {"data": {"a": None}, "errors": [{"message": "No a."}, {"message": "No b."}]},
            "The service answered with errors: No a.; No b.",
        ),
        ({"hello": 1}, "The service answered without data: it may be no GraphQL."),
    ],
)
async def test_errors_are_errors_of_the_call(
    write: Write, server: Provider, answer: dict[str, Any], message: str
) -> None:
    server.answer([whole(answer)])
    assert (
        await call_tool(write(_write_graphql({"url": server.url, "query": "{ a }"})))
    ).error == message


async def test_check_sends_a_query_without_side_effects(write: Write, server: Provider) -> None:
    server.answer([whole({"data": {"__typename": "Query"}})])
    catalog = write(_write_graphql({"url": server.url, "query": "mutation { pay }"}))

    (seen,) = await catalog.check(RUN)

    assert (seen.is_reachable, seen.detail) == (True, "answers as Query")
    assert server.requests[0].body == {"query": "{ __typename }"}


@in_one_test(
    ("query", "message"),
    [
        ("{ a", "The query is no GraphQL: Syntax Error"),
        ("query A { a } query B { b }", "The query has 2 operations: write one."),
        ("fragment F on A { a }", "The query has 0 operations: write one."),
        ("subscription { a }", "The query is a subscription"),
    ],
)
def test_a_query_that_is_none_is_an_error_at_the_start(
    write: Write, query: str, message: str
) -> None:
    with pytest.raises(ConfigurationFailed, match=r"tools\.yml:1") as caught:
        write(_write_graphql({"url": "http://a/", "query": query}))
    assert message in caught.value.message
