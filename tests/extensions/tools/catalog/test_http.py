"""Requests over HTTP as tools, against a server that does what a test says."""

import json
from typing import Any

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.tools.catalog import ToolCatalog, ToolResult
from tests.adapters.provider import CLOSE, HANG, RESET, Provider, whole
from tests.extensions.tools.catalog.conftest import RUN, Write, call_tool
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def _tool(http: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"tool": {"endpoint": {"http": http}, **fields}})


@pytest.fixture
def weather(write: Write, server: Provider) -> ToolCatalog:
    """Return a tool that asks for the weather with a key."""
    server.answer([whole({"now": {"degrees": 21, "wind": 3}})])
    return write(
        _tool(
            {
                "url": f"{server.url}/v1/{{city}}/now",
                "query": {"days": "{days}", "lang": "en"},
                "headers": {
                    "Authorization": "Bearer ${secret:API_KEY}",
                    "x-user": "${caller:user}",
                },
                "result": "now.degrees",
            },
            parameters={"city": "A city.", "days": {"type": "integer", "required": False}},
        )
    )


async def test_arguments_stand_in_the_path_and_in_the_query(
    weather: ToolCatalog, server: Provider
) -> None:
    assert await call_tool(weather, city="Città di Castello/x?", days=2) == ToolResult("21")

    (request,) = server.requests
    assert request.line == ("GET /v1/Citt%C3%A0%20di%20Castello%2Fx%3F/now?days=2&lang=en HTTP/1.1")
    assert request.headers["authorization"] == "bearer s3cret-key"
    assert request.headers["x-user"] == "ann"


async def test_the_model_sees_the_parameters_alone(weather: ToolCatalog) -> None:
    (action,) = await weather.actions(RUN)
    assert action.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "A city."},
            "days": {"type": "integer"},
        },
        "required": ["city"],
    }
    assert action.is_idempotent


async def test_an_optional_argument_that_is_not_there_is_left_out(
    weather: ToolCatalog, server: Provider
) -> None:
    await call_tool(weather, city="Rome")
    assert server.requests[0].line == "GET /v1/Rome/now?lang=en HTTP/1.1"


@in_one_test(
    ("arguments", "message"),
    [
        ({}, "Invalid arguments: 'city' is a required property. Known: city, days."),
        ({"city": "Rome", "days": "two"}, "Invalid arguments: days: 'two' is not of type"),
        ({"city": ".."}, "Invalid arguments: '.' and '..' are no parts of a path."),
        ({"city": ""}, "Invalid arguments: city: it must not be empty."),
    ],
)
async def test_arguments_that_do_not_fit_are_not_sent(
    weather: ToolCatalog, server: Provider, arguments: dict[str, Any], message: str
) -> None:
    result = await call_tool(weather, **arguments)
    assert (result.error or "").startswith(message)
    assert server.requests == []


async def test_names_in_the_address_are_parameters(write: Write, server: Provider) -> None:
    server.answer([whole(b"fine", content_type="text/plain")])
    catalog = write(_tool({"url": f"{server.url}/{{a}}?b={{b}}", "query": {"c": "{c}"}}))

    assert await call_tool(catalog, a="1", b="&x", c="3") == ToolResult("fine")
    assert server.requests[0].line == "GET /1?b=%26x&c=3 HTTP/1.1"


async def test_other_arguments_of_a_get_are_its_query(write: Write, server: Provider) -> None:
    server.answer([whole({})])
    parameters = {"q": "Words.", "tags": {"type": "array", "items": {"type": "string"}}}
    catalog = write(_tool({"url": f"{server.url}/find"}, parameters=parameters))

    await call_tool(catalog, q="a b", tags=["x", "y"])

    assert server.requests[0].line == "GET /find?q=a+b&tags=x&tags=y HTTP/1.1"


async def test_other_arguments_of_a_get_stand_beside_its_query(
    write: Write, server: Provider
) -> None:
    server.answer([whole({})])
    catalog = write(
        _tool(
            {"url": f"{server.url}/search", "query": {"units": "metric"}},
            parameters={"city": "A city."},
        )
    )
    await call_tool(catalog, city="Rome")
    assert server.requests[0].line == "GET /search?city=Rome&units=metric HTTP/1.1"


async def test_other_arguments_of_a_post_are_its_body(write: Write, server: Provider) -> None:
    server.answer([whole({"id": 7})])
    catalog = write(
        _tool(
            {"method": "POST", "url": f"{server.url}/notes"},
            parameters={"text": "A text.", "size": {"type": "integer"}},
            arguments={"by": "${caller:user}"},
        )
    )

    assert await call_tool(catalog, text="Hi", size=1) == ToolResult('{"id":7}')
    assert server.requests[0].body == {"text": "Hi", "size": 1, "by": "ann"}
    (action,) = await catalog.actions(RUN)
    assert not action.is_idempotent


async def test_a_body_is_filled_in(write: Write, server: Provider) -> None:
    server.answer([whole({})])
    body = {
        "n": "{n}",
        "list": ["{n}", "{none}", 1],
        "words": "{n} of {name}, {other} {none}.",
        "none": "{none}",
        "key": "${secret:API_KEY}",
    }
    parameters = {
        "n": {"type": "integer"},
        "name": "A name.",
        "none": {"type": "string", "required": False},
    }
    catalog = write(_tool({"url": server.url, "body": body}, parameters=parameters))

    await call_tool(catalog, n=5, name="{n} ${secret:API_KEY}")

    assert server.requests[0].line == "POST / HTTP/1.1"
    assert server.requests[0].body == {
        "n": 5,
        "list": [5, 1],
        "words": "5 of {n} ${secret:API_KEY}, {other} .",
        "key": "s3cret-key",
    }


async def test_defaults_of_the_file_are_sent_for_arguments_that_the_model_leaves_out(
    write: Write, server: Provider
) -> None:
    server.answer([whole({})])
    page = {"type": "object", "properties": {"size": {"type": "integer", "default": 10}}}
    catalog = write(
        _tool(
            {
                "url": server.url,
                "query": {"days": "{days}", "unit": "{unit}"},
                "body": {"page": "{page}", "key": "{key}"},
            },
            parameters={
                "days": {"type": "integer", "default": 0},
                "unit": {"type": "string", "default": "C"},
                "page": {**page, "default": {"size": 20}},
                "key": {"type": "string", "default": "none"},
            },
            arguments={"key": "fixed"},
        )
    )
    await call_tool(catalog, unit="F")
    await call_tool(catalog, unit="F", page={"from": 3})

    first, second = server.requests
    assert first.line == "POST /?days=0&unit=F HTTP/1.1"
    assert first.body == {"page": {"size": 20}, "key": "fixed"}
    assert second.body == {"page": {"from": 3, "size": 10}, "key": "fixed"}


async def test_a_body_may_be_a_text(write: Write, server: Provider) -> None:
    server.answer([whole({})])
    catalog = write(
        _tool(
            {"url": server.url, "body": "<a>{x}</a>", "headers": {"Content-Type": "text/xml"}},
            parameters={"x": "X."},
        )
    )
    await call_tool(catalog, x="1")
    assert server.requests[0].body == b"<a>1</a>"


async def test_an_argument_is_no_second_header(write: Write, server: Provider) -> None:
    catalog = write(
        _tool({"url": server.url, "headers": {"x-a": "{a}"}}, parameters={"a": "A header."})
    )
    result = await call_tool(catalog, a="1\r\nx-admin: yes")
    assert result.error == "Invalid arguments: the header 'x-a' must be one line."
    assert server.requests == []


@in_one_test(
    ("answer", "result"),
    [
        (whole({"a": 1}), '{"a":1}'),
        (whole({"a": 1}, content_type="application/problem+json; charset=utf-8"), '{"a":1}'),
        (whole(b""), ""),
        (whole("Grüße".encode(), content_type="text/html"), "Grüße"),
        (
            whole(b"\x89PNG", content_type="image/png"),
            '{"content":[{"type":"image","data":"iVBORw==","mimeType":"image/png"}]}',
        ),
    ],
)
async def test_an_answer_is_read_by_its_type(
    write: Write, server: Provider, answer: bytes, result: str
) -> None:
    server.answer([answer])
    assert await call_tool(write(_tool({"url": server.url}))) == ToolResult(result)


@in_one_test(
    ("answer", "message"),
    [
        (whole(b"no", status="404 Not Found", content_type="text/plain"), "HTTP 404: no"),
        (whole(b"", status="403 Forbidden", content_type="text/plain"), "HTTP 403"),
        (
            whole(b"s3cret-key " + b"x" * 500, status="400 Bad Request"),
            f"HTTP 400: *** {'x' * 289}…",
        ),
        (whole(b"{"), "The service's response is not valid JSON."),
        (
            whole(b"", status="302 Found", location="http://127.0.0.1/"),
            "The service answered with a redirection (302), which is not followed.",
        ),
        (
            whole(b"PK", content_type="application/zip"),
            "The service answered with 'application/zip', which no model reads.",
        ),
    ],
)
async def test_an_answer_that_cannot_be_used_is_an_error_of_the_call(
    write: Write, server: Provider, answer: bytes, message: str
) -> None:
    server.answer([answer])
    catalog = write(_tool({"url": server.url, "headers": {"x-key": "${secret:API_KEY}"}}))
    assert (await call_tool(catalog)).error == message


async def test_a_selection_that_is_impossible_is_an_error_of_the_call(
    write: Write, server: Provider
) -> None:
    server.answer([whole({"a": 1})])
    catalog = write(_tool({"url": server.url, "result": "sum(a)"}))
    assert "Nothing can be selected from the answer" in ((await call_tool(catalog)).error or "")


async def test_a_service_that_is_busy_is_called_again(write: Write, server: Provider) -> None:
    busy = whole(b"", status="503 Service Unavailable", retry_after="0")
    server.answer([busy], [busy], [whole({"a": 1})])
    assert await call_tool(write(_tool({"url": server.url}))) == ToolResult('{"a":1}')


async def test_a_service_that_stays_busy_is_an_error_of_the_call(
    write: Write, server: Provider
) -> None:
    server.answer([whole(b"Later.", status="429 Too Many Requests", retry_after="0")])
    assert (await call_tool(write(_tool({"url": server.url})))).error == "HTTP 429: Later."
    assert len(server.requests) == 3


async def test_a_service_that_is_busy_for_long_is_not_waited_for(
    write: Write, server: Provider
) -> None:
    server.answer([whole(b"Later.", status="429 Too Many Requests", retry_after="3600")])
    assert (await call_tool(write(_tool({"url": server.url})))).error == "HTTP 429: Later."
    assert len(server.requests) == 1


@in_one_test("end", [CLOSE, RESET])
async def test_what_may_have_had_an_effect_is_not_sent_again(
    write: Write, server: Provider, end: Any
) -> None:
    server.answer([end])
    result = await call_tool(write(_tool({"url": server.url, "method": "POST"})))
    assert result.error is not None
    assert len(server.requests) == 1


async def test_50_mb_are_not_read(write: Write, server: Provider) -> None:
    size = 50_000_000
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {size}\r\n\r\n"
    server.answer([head.encode(), b"x" * 5_000_000, HANG])

    result = await call_tool(write(_tool({"url": server.url})))

    assert result.error == "tool API error: The answer is larger than 4194304 bytes."


async def test_a_service_that_hangs_ends_its_own_call(write: Write, server: Provider) -> None:
    server.answer([HANG])
    result = await call_tool(write(_tool({"url": server.url}, timeout=0.05)))
    assert result.error is not None
    assert "0.05" in result.error


async def test_a_result_that_is_not_what_its_schema_says_is_an_error(
    write: Write, server: Provider
) -> None:
    server.answer([whole({"degrees": "many"})])
    schema = {"properties": {"degrees": {"type": "number"}}}
    result = await call_tool(write(_tool({"url": server.url}, returns=schema)))
    assert "degrees: 'many' is not of type 'number'" in (result.error or "")


@in_one_test(
    ("http", "message"),
    [
        ({"url": "http://{host}/x"}, "The model would choose the host"),
        ({"url": "{url}"}, "The model would choose the host"),
        ({"url": "ftp://a.example/"}, "is not an address"),
        ({"url": "http://a.example/${secret:NONE}"}, "The secret 'NONE' is not set."),
        ({"url": "http://a/", "result": "a["}, "tools.yml:1: tool.endpoint.http.result: "),
        ({"url": "http://a/", "method": "LOOK"}, "tools.yml:1: tool.endpoint.http.method: "),
        ({"url": "http://a/", "query": {}, "body": {}}, "The parameter 'x' is nowhere"),
    ],
)
def test_a_request_that_can_never_be_sent_is_an_error_at_the_start(
    write: Write, http: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        write(_tool(http, parameters={"x": "X."}))
    assert message in caught.value.message


def test_a_parameter_that_is_none_is_an_error_at_the_start(write: Write) -> None:
    with pytest.raises(ConfigurationFailed, match="The parameter 'x' is 5: write a description"):
        write(_tool({"url": "http://a/"}, parameters={"x": 5}))


async def test_the_whole_schema_may_be_written(write: Write, server: Provider) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    (action,) = await write(_tool({"url": server.url}, parameters=schema)).actions(RUN)
    assert action.parameters == schema


async def test_a_server_is_reached_without_a_call(write: Write, server: Provider) -> None:
    server.answer([whole(b"", status="405 Method Not Allowed")])
    (seen,) = await write(_tool({"url": f"{server.url}/book", "method": "POST"})).check(RUN)
    assert (seen.is_reachable, seen.detail) == (True, f"{server.url} answers")
    assert server.requests[0].line == "OPTIONS / HTTP/1.1"


@in_one_test(
    ("http", "doubts"),
    [
        (
            {"url": "/{town}"},
            [
                "'city' is named nowhere in the request, so it is sent in the query",
                "'{town}' is not one of the parameters, so it is one more text",
            ],
        ),
        (
            {"url": "/{day}", "body": {"q": "{town}"}, "query": {"city": "{city}"}},
            ["'{town}' is not one of the parameters, so it is sent as it is"],
        ),
        (
            {"url": "/", "method": "POST"},
            ["'city' is named nowhere in the request, so it is sent in the body"],
        ),
        (
            {"url": "/", "body": "all"},
            ["'city' is named nowhere in the request, so it is not sent"],
        ),
        (
            {"url": "/", "query": {"units": "metric"}},
            ["'city' is named nowhere in the request, so it is sent in the query"],
        ),
        ({"url": "/{city}?day={day}"}, []),
    ],
)
async def test_a_check_names_parameters_and_placeholders_without_each_other(
    write: Write, server: Provider, http: dict[str, Any], doubts: list[str]
) -> None:
    server.answer([whole(b"")])
    http = {**http, "url": f"{server.url}{http['url']}"}
    catalog = write(_tool(http, parameters={"city": "A city."}, arguments={"day": "today"}))

    (seen,) = await catalog.check(RUN)

    assert seen.is_reachable
    assert seen.detail.split("; ")[1:] == doubts


async def test_an_empty_selection_is_reported_to_the_model(write: Write, server: Provider) -> None:
    server.answer([whole({"now": {"degrees": 21}, "days": []})], [whole(b"[1]")])
    catalog = write(_tool({"url": server.url, "result": "now.nothing"}))

    assert await call_tool(catalog) == ToolResult(
        "There is nothing at 'now.nothing' in the answer. The answer has: now, days."
    )
    assert await call_tool(catalog) == ToolResult(
        "There is nothing at 'now.nothing' in the answer."
    )


async def test_a_path_may_find_null_where_the_results_may_be_null(
    write: Write, server: Provider
) -> None:
    server.answer([whole({"next": None})])
    catalog = write(_tool({"url": server.url, "result": "next"}, returns={"type": "null"}))
    assert await call_tool(catalog) == ToolResult("")


async def test_a_server_that_is_not_there_is_not_reached(write: Write) -> None:
    (seen,) = await write(_tool({"url": "http://127.0.0.1:1/"})).check(RUN)
    assert not seen.is_reachable
    assert "The connection was refused" in seen.detail
