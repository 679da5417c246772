"""What pages of both generations get that may not ask, or not now: a form that they show."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.access.credentials import issue_key
from tests.extensions.access.server import KEY, Entrance, entering, settings_of
from tests.wire.documents import chat
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH

pytestmark = pytest.mark.anyio

V1 = {"x-copilotkit-runtime-client-gql-version": "1.10.6", "origin": "http://localhost:3000"}
WAIT = "This API key has sent more than 1 request in 1 hour. Please try again in 60 minutes."


async def credentials(server: Entrance) -> dict[str, Browser]:
    """Return somebody for each refusal."""
    limited = server.bearer(await issue_key(server.keys, "ada"))
    await limited.ask("GET", "/info")
    return {
        "Sign in to use this server.": server.browser(),
        "The API key is not valid.": server.bearer("cpk_0123456789abcdef_" + "x" * 43),
        "You may not do this: it needs the scope 'runs:start'.": server.bearer(
            await issue_key(server.keys, "ada", scopes=["threads:read"])
        ),
        "Nobody can sign in at the moment: keys cannot be read.": server.bearer(KEY.sign()),
        WAIT: limited,
    }


def settings_that_refuse(path: Path) -> Any:
    jwt = {"jwks": "http://127.0.0.1:1/keys", "audience": ["copilot"]}
    return settings_of(path, jwt=jwt, limits={"requests_per_key": "1/hour"})


def read_failure(body: Any) -> tuple[str, str]:
    """Return the thread and the sentence of an answer that has failed, as react-core 1.10 does."""
    response = body["data"]["generateCopilotResponse"]
    status = response["status"]
    assert status["__typename"] == "FailedResponseStatus", body
    assert status["reason"] == "UNKNOWN_ERROR"
    assert status["details"]["originalError"]["visibility"] == "banner"
    return response["threadId"], status["details"]["description"]


async def test_a_page_of_v1_gets_an_answer_that_has_failed(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=settings_that_refuse(tmp_path)) as server:
        for sentence, browser in (await credentials(server)).items():
            answer = await browser.ask("POST", "", chat(threadId="thread-7"), V1)

            assert (answer.status, read_failure(answer.json())) == (200, ("thread-7", sentence))
            assert answer.headers["access-control-allow-origin"] == V1["origin"]
            if sentence == WAIT:
                assert int(answer.headers["retry-after"]) > 3000
                assert answer.headers["access-control-expose-headers"] == "Retry-After"


async def test_programs_and_other_questions_get_the_status(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=settings_that_refuse(tmp_path)) as server:
        stranger = server.browser()
        program = await stranger.ask("POST", "", chat())
        hello = {"operationName": "hello", "query": "query hello { hello }"}
        other = await stranger.ask("POST", "", hello, V1)
        read = await stranger.ask("GET", "?query={hello}", None, V1)
        empty = await stranger.ask("POST", "", b"", V1)

    assert [it.status for it in (program, other, read, empty)] == [401] * 4
    assert program.json()["errors"][0]["message"] == "Sign in to use this server."


async def test_of_a_stranger_only_the_beginning_is_read(tmp_path: Path) -> None:
    """The rest of the body never comes: whoever waited for it would answer nothing."""
    async with entering(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        lines = [f"POST {PATH} HTTP/1.1", "host: localhost", "content-length: 10000000"]
        lines += [f"{name}: {value}" for name, value in V1.items()]
        beginning = '{"operationName":"generateCopilotResponse","query":"'
        writer.write("\r\n".join([*lines, "", beginning]).encode())
        status = await reader.readline()
        writer.close()

    assert status.startswith(b"HTTP/1.1 200")


async def test_a_page_of_v2_gets_the_sentence_by_an_event_or_with_the_status(
    tmp_path: Path,
) -> None:
    async with entering(tmp_path, settings=settings_that_refuse(tmp_path)) as server:
        for sentence, browser in (await credentials(server)).items():
            answer = await browser.run()
            body = answer.events()[-1] if answer.status == 200 else answer.json()

            assert body["message"] == sentence
        info = await server.bearer(KEY.sign()).ask("GET", "/info")
        assert (info.status, info.json()["error"]) == (503, "authentication_unavailable")
