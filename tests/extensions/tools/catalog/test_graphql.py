"""Operations of GraphQL services as tools."""

import json
from typing import Any

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.tools.catalog import ToolResult
from tests.adapters.provider import Provider, whole
from tests.extensions.tools.catalog.conftest import RUN, Write, call_tool
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

QUERY = """
query Orders($of: ID!, $first: Int = 3, $tags: [String!]!, $by: OrderBy, $open: Boolean) {
  orders(of: $of, first: $first, tags: $tags, by: $by, open: $open) { id }
}
"""


def _tool(graphql: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"tool": {"endpoint": {"graphql": graphql}, **fields}})


async def test_the_variables_are_the_parameters(write: Write) -> None:
    catalog = write(_tool({"url": "http://a/", "query": QUERY}, parameters={"of": "Whose."}))

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
        _tool(
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
    catalog = write(_tool({"url": server.url, "query": "mutation { pay }"}))

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
    assert (await call_tool(write(_tool({"url": server.url, "query": "{ a }"})))).error == message


async def test_check_sends_a_query_without_side_effects(write: Write, server: Provider) -> None:
    server.answer([whole({"data": {"__typename": "Query"}})])
    catalog = write(_tool({"url": server.url, "query": "mutation { pay }"}))

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
        write(_tool({"url": "http://a/", "query": query}))
    assert message in caught.value.message
