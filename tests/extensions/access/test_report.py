"""What `access` tells: each about themselves, and operators about all, without a secret."""

import asyncio
import json
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import Settings
from copilot_runtime.extensions.access.audit.log import AuditLog
from tests.cli.test_cli import Start, url_in
from tests.extensions.access.credentials import (
    KEY,
    SECRET,
    Entrance,
    entering,
    issue_key,
    settings_of,
)
from tests.in_one_test import in_one_test
from tests.wire.client import chat
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, browsing

pytestmark = pytest.mark.anyio


async def test_everybody_learns_who_they_are_and_what_they_may_do(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, limits={"requests_per_user": "10/day"})
    async with entering(tmp_path, settings=settings) as server:
        text = await issue_key(server.keys, "ada", "acme", roles=["reader"])
        await server.bearer(text).ask("GET", "/info")
        answer = await server.bearer(text).ask("GET", "/access/whoami")
        me: dict[str, Any] = answer.json()

    (limit,) = me.pop("limits")
    assert me == {
        "user": "ada",
        "tenant": "acme",
        "owner": "tenant:acme/ada",
        "roles": ["reader"],
        "unknown_roles": [],
        "scopes": ["data:read", "threads:read"],
        "method": "api_key",
        "key": text[4:20],
        "is_operator": False,
    }
    assert (limit["level"], limit["kind"], limit["used"], limit["limit"]) == (
        "user",
        "requests",
        2,
        10.0,
    )
    assert answer.headers["cache-control"] == "private, no-store"


async def test_an_operator_makes_and_revokes_keys_and_deletes_threads_which_the_audit_log_has(
    tmp_path: Path,
) -> None:
    log = tmp_path / "audit.jsonl"
    settings = settings_of(tmp_path, audit={"file": str(log)})
    async with entering(tmp_path, settings=settings) as server:
        root = await server.sign_in("api_keys", "root", roles=["operator"])
        made = await root.ask(
            "POST", "/access/keys", {"name": "ci", "user": "ann", "expires": "9d"}
        )
        ann = server.bearer(made.json()["key"])
        await ann.run(thread="t1")
        deleted = await root.ask("DELETE", "/access/users/ann/threads")
        left = (await ann.ask("GET", "/threads")).json()["threads"]
        revoked = await root.ask("DELETE", f"/access/keys/{made.json()['prefix']}")
        after = await ann.ask("GET", "/threads")
        await server.runtime.get(AuditLog).flush()

    assert (made.status, deleted.json(), left) == (201, {"deleted": 1, "more": False}, [])
    assert (revoked.json()["state"], after.status) == ("revoked", 401)
    written = {
        line["action"]: line.get("reason") for line in map(json.loads, log.read_text().splitlines())
    }
    prefix = made.json()["prefix"]
    assert written["keys.create"].startswith(f"{prefix} (ci) of ann, roles user")
    assert written["keys.revoke"].startswith(f"{prefix} (ci) of ann")
    assert written["threads.delete"] == "all of ann"
    assert made.json()["key"] not in log.read_text()


async def test_nobody_makes_a_key_that_may_do_more_than_they_may(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=settings_of(tmp_path)) as server:
        every = await issue_key(server.keys, "root", roles=["operator"], scopes=["operate"])
        keeper, ann = server.bearer(every), await server.sign_in("api_keys", "ann")
        beyond = await keeper.ask("POST", "/access/keys", {"name": "more", "roles": ["reader"]})
        whole = await keeper.ask("POST", "/access/keys", {"name": "all", "scopes": ["*"]})
        wrong = [
            await keeper.ask("POST", "/access/keys", body)
            for body in ({}, {"name": "x", "roles": "user"}, {"name": "x", "expires": "soon"}, [])
        ]
        refused = [
            await ann.ask("POST", "/access/keys", {"name": "mine"}),
            await ann.ask("DELETE", f"/access/keys/{every[:20]}"),
            await ann.ask("DELETE", "/access/users/root/threads"),
        ]
        kept = await server.keys.list_keys()

    assert (beyond.status, whole.status) == (403, 403)
    assert b"data:read, threads:read" in beyond.body
    assert [answer.status for answer in wrong] == [400] * 4
    assert [answer.status for answer in refused] == [403] * 3
    assert [(key.name, key.revoked_at) for key in kept] == [("root", None), ("ann", None)]


async def test_operators_see_keys_roles_and_limits_and_no_secret(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, limits={"tokens_per_user": "10/day"})
    async with entering(tmp_path, settings=settings) as server:
        texts = [await issue_key(server.keys, name) for name in ("ada", "eve")]
        operator = await server.sign_in("api_keys", "root", roles=["operator"])
        answer = await operator.ask("GET", "/access")
        server_report = answer.json()

    assert [key["prefix"] for key in server_report["keys"]][:2] == [text[:20] for text in texts]
    assert server_report["roles"]["guest"] == ["threads:read"]
    assert server_report["limits"]["tokens_per_user"] == ["10/day"]
    assert server_report["is_open"] is False
    body = answer.body.decode()
    assert not any(secret in body for secret in (SECRET, texts[0][21:], "salt", "hash"))


@in_one_test("path", ["/access", "/access/other"])
async def test_all_else_is_for_operators(tmp_path: Path, path: str) -> None:
    async with entering(tmp_path) as server:
        user = await server.sign_in("api_keys", "ada")

        assert (await user.ask("GET", path)).status == (403 if path == "/access" else 404)
        assert (await user.ask("POST", path, {})).status == (405 if path == "/access" else 404)


async def test_where_nobody_signs_in_whoever_sits_at_the_machine_is_an_operator() -> None:
    async with browsing(settings=Settings(threads="memory")) as browser:
        me = (await browser.ask("GET", "/access/whoami")).json()
        far = await browser.ask("GET", "/access", headers={"x-forwarded-for": "10.0.0.1"})
        near = (await browser.ask("GET", "/access")).json()

    assert (me["user"], me["is_operator"]) == (None, True)
    assert far.status == 403
    assert (near["is_open"], near["ways"], near["keys"]) == (True, [], [])


async def test_a_token_whose_roles_are_all_unknown_is_explained_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keycloak = ["default-roles-acme", "offline_access", "uma_authorization"]
    async with entering(tmp_path) as server:
        for user in ("ada", "eve"):
            page = await server.sign_in("jwt", user, "acme", roles=keycloak)
            me = (await page.ask("GET", "/access/whoami")).json()
            refused = await page.ask("GET", "/threads")
        mixed = await server.sign_in("jwt", "bob", "acme", roles=[*keycloak, "reader"])
        his = (await mixed.ask("GET", "/access/whoami")).json()

    assert (me["scopes"], me["unknown_roles"], refused.status) == ([], keycloak, 403)
    assert (his["scopes"], his["unknown_roles"]) == (["data:read", "threads:read"], keycloak)
    [line] = [text for text in caplog.messages if "none of them is known" in text]
    assert "(jwt) names the roles 'default-roles-acme', 'offline_access'" in line
    assert "access.roles" in line
    assert "jwt.roles_claim" in line


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
        "Sign-in is unavailable: the signing keys cannot be read.": server.bearer(KEY.sign()),
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


CONFIG = """
limits: {requests_per_user: 1/hour}
audit: {file: audit.jsonl, reads: true}
access: {authenticate: [api_keys], anonymous: true}
serve_a2a: true
allowed_hosts: [app.example]
"""
KNOWN = "proxy: {addresses: [127.0.0.1]}"


def ask(url: str, path: str, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection(url.removeprefix("http://"))
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", f"/graphql/{path}", headers={"host": "app.example", **names})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


@in_one_test(
    ("config", "statuses", "addresses"),
    [
        (CONFIG, [200, 429, 429], {"127.0.0.1"}),
        (CONFIG + KNOWN, [200, 200, 429], {"203.0.113.7", "203.0.113.8"}),
    ],
)
def test_nobody_chooses_an_address_but_by_a_proxy_that_is_named(
    tmp_path: Path, config: str, statuses: list[int], addresses: set[str]
) -> None:
    (tmp_path / "copilot.yml").write_text(config)
    clients = ["203.0.113.7", "10.9.9.9, 203.0.113.8", "203.0.113.8"]
    with ExitStack() as stack:
        url = url_in(Start(tmp_path, stack)())
        found = [ask(url, "threads", x_forwarded_for=client)[0] for client in clients]
        for number in range(50):
            last = f"203.0.113.{7 + number % 2}"
            forged = {"x_forwarded_for": f"10.0.0.{number}, {last}", "authorization": "Bearer bad"}
            assert ask(url, "threads", **forged)[0] == 401

    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert found == statuses
    assert {line["address"] for line in lines} == addresses
    refused = [line for line in lines if line.get("status") == 401]
    assert 20 * len(addresses) <= len(refused) <= 40 * len(addresses)


@in_one_test("proxies", ["", KNOWN])
def test_urls_begin_as_the_proxy_was_asked(tmp_path: Path, proxies: str) -> None:
    (tmp_path / "copilot.yml").write_text(CONFIG + proxies)
    with ExitStack() as stack:
        url = url_in(Start(tmp_path, stack)())
        card = "a2a/default/.well-known/agent-card.json"
        behind = ask(url, card, x_forwarded_proto="https", x_forwarded_for="203.0.113.7")[1]
        forged = ask(url, card, x_forwarded_proto="gopher", x_forwarded_for="203.0.113.8")[1]

    assert b'"https://app.example/graphql/a2a' in behind
    assert b"https://app.example" not in forged
