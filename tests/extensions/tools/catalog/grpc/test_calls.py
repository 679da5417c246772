"""Calls of methods of real servers, and what becomes of their errors."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.api import ActionContext
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    NetworkError,
    RateLimited,
)
from tests.extensions.tools.catalog.conftest import RUN
from tests.extensions.tools.catalog.grpc.conftest import Context, MakeTool, serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ORDER = "order: {endpoint: {grpc: {address: %s, method: shop.Shop.Order, proto: shop.proto}}}"
SEED = "find: {method: shop.Shop.Find, request: shop.Query, purpose: Find things.}"


async def sell(request: dict[str, Any], context: Context) -> Any:
    return {"number": "n1", "items": len(request.get("items", []))}


async def find(request: dict[str, Any], context: Context) -> Any:
    return {"content": f"Found {', '.join(request.get('input', []))}."}


async def test_a_method_is_called_with_the_arguments_of_the_model(make_tool: MakeTool) -> None:
    async with serve({"Order": sell}) as shop:
        order = make_tool(ORDER % shop.address)

        assert await order.call(
            items=[{"name": "tea", "count": 2}],
            speed="FAST",
            limits={"day": {"currency": "EUR", "cents": 500}},
            card="123",
            due="2026-01-02T03:04:05Z",
            extra={"a": [1, None]},
            limit=7,
        ) == {"number": "n1", "items": 1, "paid": False}
        assert shop.requests == [
            {
                "items": [{"name": "tea", "count": 2}],
                "speed": "FAST",
                "limits": {"day": {"currency": "EUR", "cents": "500"}},
                "card": "123",
                "due": "2026-01-02T03:04:05Z",
                "extra": {"a": [1.0, None]},
                "limit": "7",
            }
        ]
        assert 20 < shop.deadlines[0] <= 31


async def test_the_seeds_form_finds_its_proto_and_the_address_of_its_service(
    make_tool: MakeTool, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "proto").symlink_to(Path(__file__).parent / "proto")
    async with serve({"Find": find}) as shop:
        for services, environ in (
            ({"shop": shop.address}, {}),
            ({"shop.Shop": {"url": f"grpc://{shop.address}"}}, {}),
            ({"shop": {"host": "127.0.0.1", "port": int(shop.address.split(":")[1])}}, {}),
            ({}, {"SERVICE_SHOP_URL": f"grpc://{shop.address}"}),
            ({"shop": "grpc://${WHERE}"}, {"WHERE": shop.address}),
        ):
            tool = make_tool(SEED, services=services, environ=environ, folder=tmp_path / "config")
            assert (await tool.load()).is_idempotent
            assert await tool.call(input=["tea"]) == {
                "content": "Found tea.",
                "identifiers": [],
            }


async def test_the_address_of_a_service_is_found_in_the_file_of_copilot_ld(
    make_tool: MakeTool, tmp_path: Path
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (tmp_path / "proto").symlink_to(Path(__file__).parent / "proto")
    async with serve({"Find": find}) as shop:
        port = int(shop.address.split(":")[1])
        for section in (
            {"host": "127.0.0.1", "port": port},
            {"url": f"grpc://127.0.0.1:{port}", "budget": {"tokens": 5}},
        ):
            (folder / "config.json").write_text(json.dumps({"service": {"shop": section}}))
            tool = make_tool(SEED, folder=folder)
            assert (await tool.call(input=["tea"]))["content"] == "Found tea."


async def test_the_operators_filter_replaces_that_of_the_model(make_tool: MakeTool) -> None:
    async with serve({"Find": find}) as shop:
        service = {
            "address": shop.address,
            "proto": "shop.proto",
            "filter": {
                "threshold": 0.64,
                "max_tokens": 8000,
                "kinds": [1, "b"],
                "strict": True,
                "labels": {"a": "b"},
                "exact": True,
                "unknown": 1,
            },
            "llm_token": "${secret:TOKEN}",
        }
        tool = make_tool(SEED, services={"shop": service}, environ={"TOKEN": "secret-token"})

        await tool.call(input=["a"], filter={"threshold": "0"}, llm_token="x", resource_id="y")
        assert shop.requests == [
            {
                "input": ["a"],
                "filter": {
                    "threshold": "0.64",
                    "max_tokens": "8000",
                    "kinds": ["1", "b"],
                    "strict": True,
                    "labels": {"a": "b"},
                    "exact": "true",
                },
                "llm_token": "secret-token",
                "resource_id": "common.Conversation.t",
            }
        ]


async def test_fixed_arguments_count_more_than_what_is_filled_in(make_tool: MakeTool) -> None:
    async with serve({"Find": find}) as shop:
        tool = make_tool(
            f"find: {{endpoint: {{grpc: {{address: '{shop.address}', method: shop.Shop.Find,"
            " proto: shop.proto}}, arguments: {resource_id: common.Conversation.c9}}"
        )
        await tool.call(input=["a"], resource_id="common.Conversation.c9")  # the catalog adds it
        assert shop.requests == [{"input": ["a"], "resource_id": "common.Conversation.c9"}]


async def test_requests_that_are_no_objects_and_empty_ones_are_sent(make_tool: MakeTool) -> None:
    async def shout(request: Any, context: Context) -> Any:
        return request.upper()

    async def rest(request: Any, context: Context) -> Any:
        return {}

    async with serve({"Shout": shout, "Rest": rest, "Ping": sell}) as shop:
        text = ORDER % shop.address
        assert await make_tool(text.replace("Order", "Shout")).call(value="hey") == "HEY"
        assert await make_tool(text.replace("Order", "Rest")).call() == {}
        assert (await make_tool(text.replace("Order", "Ping")).call())["number"] == "n1"


async def test_a_stream_of_answers_is_a_list(make_tool: MakeTool) -> None:
    async def watch(request: Any, context: Context) -> Any:
        async def numbers() -> AsyncGenerator[Any]:
            for number in range(int(request["input"][0])):
                yield {"number": str(number)}

        return numbers()

    async with serve({"Watch": watch}) as shop:
        text = (ORDER % shop.address).replace("Order", "Watch")
        tool = make_tool(text)
        assert [one["number"] for one in await tool.call(input=["3"])] == ["0", "1", "2"]

        with pytest.raises(CopilotError, match="more than 1000 messages"):
            await tool.call(input=["100000"])
        small = make_tool(text.replace("proto:", "max_response: 100, proto:"))
        with pytest.raises(CopilotError, match="more than 100 bytes"):
            await small.call(input=["1000"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"speed": "WARP"}, "Invalid enum value WARP"),
        ({"nonsense": 1}, 'no field named "nonsense"'),
        ({"card": "1", "cash": {}}, 'multiple "pay" oneof fields'),
        ({"due": "soon"}, "due field"),
        ({"items": 5}, "items"),
    ],
)
async def test_wrong_arguments_are_an_error_for_the_model(
    make_tool: MakeTool, values: dict[str, Any], words: str
) -> None:
    order = make_tool(ORDER % "127.0.0.1:1")
    with pytest.raises(InvalidArguments) as raised:
        await order.call(**values)
    assert str(raised.value).startswith("The arguments are no shop.OrderRequest: ")
    assert words in str(raised.value)


@in_one_test(
    ("status", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, CopilotError),
        (grpc.StatusCode.UNAVAILABLE, NetworkError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, RateLimited),
        (grpc.StatusCode.UNAUTHENTICATED, AuthenticationFailed),
    ],
)
async def test_a_status_is_an_error_of_its_kind(
    make_tool: MakeTool, status: grpc.StatusCode, kind: type[CopilotError]
) -> None:
    async def refuse(request: Any, context: Context) -> Any:
        await context.abort(status, "No tea today. " + "x" * 5000)

    async with serve({"Order": refuse}) as shop:
        with pytest.raises(kind) as raised:
            await make_tool(ORDER % shop.address).call()
        assert type(raised.value) is kind
        assert raised.value.kind == status.name
        assert shop.address in raised.value.message
        assert "No tea today." in raised.value.message + (raised.value.hint or "")
        assert len(raised.value.message) < 700


async def test_a_server_that_is_not_there_says_so(make_tool: MakeTool) -> None:
    with pytest.raises(NetworkError, match=r"'127.0.0.1:1' cannot be reached"):
        await make_tool(ORDER % "127.0.0.1:1").call()


async def test_metadata_and_a_token_are_sent_with_each_call(
    make_tool: MakeTool, context: ActionContext
) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    async with serve({"Order": sell}) as shop:
        tool = make_tool(
            f"order: {{endpoint: {{grpc: {{address: '{shop.address}', method: shop.Shop.Order,"
            " proto: shop.proto, token: {service: agent},"
            " metadata: {X-Key: '${secret:KEY}', x-user: '${header:x-user}', k-bin: ab}}}}",
            environ={"KEY": "the-key", "SERVICE_SECRET": secret},
        )
        await tool.call_in(replace(context, headers={"x-user": "ann"}))

        (metadata,) = shop.metadata
        assert metadata["x-key"] == "the-key"
        assert metadata["x-user"] == "ann"
        assert metadata["k-bin"] == "b'ab'"
        token = base64.b64decode(metadata["authorization"].removeprefix("Bearer ")).decode()
        payload, _, signature = token.rpartition(":")
        assert payload.startswith("agent:")
        expected = hmac.new(secret.encode(), payload.encode(), hashlib.sha256).hexdigest()
        assert signature == expected


async def test_a_secret_that_services_would_refuse_is_an_error_here(make_tool: MakeTool) -> None:
    tool = make_tool(
        (ORDER % "127.0.0.1:1").replace("proto:", "token: {}, proto:"),
        environ={"SERVICE_SECRET": "short"},
    )
    with pytest.raises(CopilotError, match="must have 32 characters or more"):
        await tool.call()


async def test_check_says_why_a_server_is_not_reached(make_tool: MakeTool) -> None:
    with pytest.raises(NetworkError, match=r"'127.0.0.1:1' cannot be reached") as caught:
        await make_tool(ORDER % "127.0.0.1:1").endpoint.check(RUN)
    assert "Connection refused" in (caught.value.hint or "")


async def test_check_reaches_the_server_and_calls_nothing(make_tool: MakeTool) -> None:
    async with serve({"Order": sell}) as shop:
        seen = await make_tool(ORDER % shop.address).endpoint.check(RUN)
        assert seen == f"{shop.address} is reached, and takes 21 parameters"
        assert shop.requests == []
