"""What a remote endpoint offers is asked for as seldom as is right."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from copilot_runtime.api import Caller
from copilot_runtime.base.errors import ConfigurationFailed, NetworkError
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from tests.adapters.provider import HANG, RESET, Provider, whole
from tests.extensions.frameworks.remote.endpoint import (
    BROKEN,
    GONE,
    INFO,
    OFFERED,
    REFUSED,
    asked,
    endpoint_of,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ANN = Caller(user="ann", properties={"team": "blue"}, url="http://page/")


async def names(endpoint: RemoteEndpoint, caller: Caller = ANN) -> list[str]:
    return [agent.name for agent in (await endpoint.fetch_catalog(caller)).agents]


async def test_it_is_asked_with_properties_and_the_page(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    assert await names(endpoint) == ["research", "crew"]

    [request] = server.requests
    assert request.line == "POST /copilotkit/info HTTP/1.1"
    assert request.body == {"properties": {"team": "blue"}, "frontendUrl": "http://page/"}


async def test_actions_have_the_schema_of_their_parameters(endpoint: RemoteEndpoint) -> None:
    [action] = await endpoint.actions(asked())

    assert (action.name, action.description) == ("add", "Add.")
    assert action.parameters == {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a"],
    }


async def test_it_is_asked_once_by_many_at_a_time(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    answer = asyncio.Event()
    server.answer([answer, *OFFERED])
    many = [asyncio.create_task(names(endpoint)) for _ in range(5)]
    await server.until_asked(1)

    many[0].cancel()
    answer.set()

    assert await asyncio.gather(*many[1:]) == [["research", "crew"]] * 4
    assert len(server.requests) == 1


async def test_it_is_asked_again_when_the_answer_is_old(server: Provider) -> None:
    server.answer(OFFERED, [whole({**INFO, "agents": []})])
    endpoint = endpoint_of(server, ttl=0)

    assert (await names(endpoint), await names(endpoint)) == (["research", "crew"], [])
    await endpoint.aclose()


@in_one_test(
    "other",
    [
        Caller(user="ann", properties={"team": "red"}, url="http://page/"),
        Caller(user="ann", properties={"team": "blue"}, url="http://other/"),
        Caller(
            user="ann",
            properties={"team": "blue"},
            url="http://page/",
            headers={"authorization": "Bearer 2"},
        ),
    ],
)
async def test_nobody_gets_the_answer_to_another_question(server: Provider, other: Caller) -> None:
    server.answer(OFFERED, [whole({**INFO, "agents": []})])
    endpoint = endpoint_of(server)

    assert (await names(endpoint), await names(endpoint, other)) == (["research", "crew"], [])
    await endpoint.aclose()


async def test_only_so_many_answers_are_remembered(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    for number in range(257):
        await names(endpoint, Caller(properties={"n": number}))
    await names(endpoint, Caller(properties={"n": 256}))
    await names(endpoint, Caller(properties={"n": 0}))

    assert len(server.requests) == 258


async def test_what_was_known_still_counts_when_it_is_down(server: Provider) -> None:
    server.answer(OFFERED, BROKEN)
    endpoint = endpoint_of(server, ttl=0)
    await names(endpoint)

    offer = await endpoint.fetch_catalog(ANN)

    assert [agent.name for agent in offer.agents] == ["research", "crew"]
    assert offer.failure is not None
    await endpoint.aclose()


async def test_what_was_known_no_longer_counts_for_who_is_refused(server: Provider) -> None:
    server.answer(OFFERED, REFUSED)
    endpoint = endpoint_of(server, ttl=0)

    assert (await names(endpoint), await names(endpoint)) == (["research", "crew"], [])
    await endpoint.aclose()


async def test_one_that_is_down_is_not_asked_by_everybody(server: Provider) -> None:
    server.answer(BROKEN, OFFERED)
    endpoint = endpoint_of(server, retry_pause=60)

    assert (await names(endpoint), await names(endpoint)) == ([], [])
    assert len(server.requests) == 1
    await endpoint.aclose()


async def test_one_that_is_back_is_found_after_the_pause(server: Provider) -> None:
    server.answer(BROKEN, OFFERED)
    endpoint = endpoint_of(server, retry_pause=0)

    assert (await names(endpoint), await names(endpoint)) == ([], ["research", "crew"])
    assert (await endpoint.fetch_catalog(ANN)).failure is None
    await endpoint.aclose()


async def test_a_connection_that_breaks_is_tried_once_more(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    server.answer([RESET], OFFERED)

    assert await names(endpoint) == ["research", "crew"]


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        (GONE, "API_NOT_FOUND", "Failed to find CopilotKit API endpoint at url"),
        (BROKEN, "UNKNOWN", "Unknown error occurred"),
        (REFUSED, "AUTHENTICATION_ERROR", "A remote endpoint refuses this request."),
        ([whole({"hello": 1})], "NETWORK_ERROR", "answered with something else"),
        ([whole(b"[]")], "NETWORK_ERROR", "answered with something else"),
        ([whole(b"<html>")], "NETWORK_ERROR", "answered with something else"),
        ([whole(b"", status="307 Moved", location="http://x/")], "UNKNOWN", "Unknown error"),
    ],
)
async def test_it_is_known_why_it_cannot_be_asked(
    server: Provider, endpoint: RemoteEndpoint, script: Any, code: str, message: str
) -> None:
    server.answer(script)

    failure = (await endpoint.fetch_catalog(ANN)).failure

    assert failure is not None
    assert failure.code == code
    assert message in failure.message


async def test_one_that_is_silent_keeps_nobody_waiting(server: Provider) -> None:
    server.answer([HANG])
    endpoint = endpoint_of(server, discovery_timeout=0.05)

    failure = (await endpoint.fetch_catalog(ANN)).failure

    assert isinstance(failure, NetworkError)
    assert failure.message == "A remote endpoint did not say in time what it offers."
    await endpoint.aclose()


async def test_a_server_that_has_only_the_newer_routes_is_asked_there(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    server.answer(GONE, OFFERED)

    assert await names(endpoint) == ["research", "crew"]
    assert server.requests[1].line == "POST /copilotkit/ HTTP/1.1"


async def test_the_headers_of_the_hook_win_over_ours_and_these_over_those_of_the_client(
    server: Provider,
) -> None:
    async def hook(caller: Caller) -> Mapping[str, str]:
        return {"X-User": f"{caller.user}", "X-B": "hook"}

    endpoint = endpoint_of(server, headers={"X-A": "ours", "X-B": "ours"}, before_request=hook)
    forwarded = {"x-a": "theirs", "x-c": "theirs", "cookie": "c", "x-copilotcloud-key": "k"}

    await endpoint.fetch_catalog(Caller(user="ann", headers=forwarded))

    sent = server.requests[0].headers
    assert {name: sent.get(name) for name in ("x-a", "x-b", "x-c", "x-user")} == {
        "x-a": "ours",
        "x-b": "hook",
        "x-c": "theirs",
        "x-user": "ann",
    }
    assert not {"cookie", "x-copilotcloud-key"} & {*sent}
    await endpoint.aclose()


@in_one_test("returned", [7, {"a": 1}, {"a": "b\r\nc: d"}, [("a", "b")]])
async def test_a_hook_that_returns_no_headers_is_a_failure_and_asks_nothing(
    server: Provider, returned: Any
) -> None:
    def hook(caller: Caller) -> Any:
        del caller
        return returned

    endpoint = endpoint_of(server, before_request=hook)

    offer = await endpoint.fetch_catalog(ANN)

    assert isinstance(offer.failure, ConfigurationFailed)
    assert server.requests == []


async def test_a_hook_that_fails_costs_only_this_endpoint(server: Provider) -> None:
    def hook(caller: Caller) -> Mapping[str, str]:
        raise KeyError(caller.user)

    failure = (await endpoint_of(server, before_request=hook).fetch_catalog(ANN)).failure

    assert str(failure) == "The run failed. The server's log says why."


@in_one_test("url", ["agents", "ftp://host/", "http://", "/copilotkit"])
def test_an_address_is_needed(url: str) -> None:
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        RemoteEndpoint(url)


async def test_what_it_offers_without_a_name_is_left_out(
    server: Provider, endpoint: RemoteEndpoint
) -> None:
    agents = [{"type": "crewai"}, 7, {"name": ""}, {"name": "crew", "type": None}]
    server.answer([whole({"agents": agents, "actions": None})])

    assert await names(endpoint) == ["crew"]
    assert await endpoint.actions(asked(url="http://page/", properties={"team": "blue"})) == []


async def test_what_another_page_was_told_counts_only_when_it_is_down(server: Provider) -> None:
    server.answer(OFFERED, BROKEN)
    endpoint = endpoint_of(server)
    await names(endpoint)

    other = Caller(user="ann", properties={"team": "blue"}, url="http://other/")
    stranger = Caller(user="bob", properties={"team": "red"}, url="http://other/")

    assert await names(endpoint, other) == ["research", "crew"]
    assert await names(endpoint, stranger) == []
    await endpoint.aclose()
