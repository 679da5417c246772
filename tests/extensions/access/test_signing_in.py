"""Several ways to sign in at once: what is recognised decides, and what is wrong is refused."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, RunInput, ScriptedAdapter, Settings
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from tests.extensions.access.credentials import (
    KEY,
    SECRET,
    WAYS,
    entering,
    issue_key,
    make_key,
    settings_of,
)
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser, run_input
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


async def owners_of(browser: Browser) -> list[str]:
    """Start a run, and return to whom its thread belongs."""
    answer = await browser.run()
    assert answer.types()[-1] == "RUN_FINISHED", answer.body
    threads = (await browser.ask("GET", "/threads")).json()["threads"]
    return [thread["createdById"] for thread in threads]


@in_one_test(
    ("way", "owner"),
    [
        ("api_keys", "tenant:acme/ada"),
        ("jwt", "tenant:acme/ada"),
        ("proxy", "tenant:acme/ada"),
        ("service_tokens", "service:ada"),
    ],
)
async def test_each_credential_says_whose_a_thread_is(tmp_path: Path, way: str, owner: str) -> None:
    settings = settings_of(tmp_path)
    jwt = settings.jwt.model_copy(update={"tenant_claim": "org"})
    settings = settings.model_copy(update={"jwt": jwt})
    async with entering(tmp_path, settings=settings) as server:
        assert await owners_of(await server.sign_in(way, "ada", "acme")) == [owner]


async def test_who_brings_no_credential_is_asked_for_one(tmp_path: Path) -> None:
    async with entering(tmp_path) as server:
        answer = await server.browser().ask("GET", "/info")

    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["message"] == "Sign in to use this server."


EXPIRED = KEY.sign(exp=time.time() - 60)
FORGED = make_key("another").sign({"kid": "k1"})
LATE = ServiceTokenSigner("agent", [SECRET], form="simple", clock=lambda: time.time() - 7200)
FOREIGN = ServiceTokenSigner("agent", [SECRET[::-1]], form="simple")
HALVES = ["ann\ud800", "ann\ud801", "ann\ufffd"]
"""JSON that is read, and a percent code that is none, make one of them all."""


@in_one_test(
    "token",
    [
        "",
        "x",
        "cpk_",
        "cpk_0123456789abcdef_" + "x" * 43,
        "CPK_0123456789abcdef_" + "x" * 43,
        "cpk_" + "é" * 43,
        EXPIRED,
        FORGED,
        KEY.sign(aud="another"),
        KEY.sign(sub="tenant:acme/ada"),
        KEY.sign(sub="service:ada"),
        KEY.sign(sub="key:0123456789abcdef"),
        KEY.sign(sub="a\nb"),
        KEY.sign(sub="a\0b"),
        *(KEY.sign(sub=user) for user in HALVES),
        KEY.sign(roles=7),
        KEY.sign(roles={"user": 1}),
        KEY.sign(sub="x" * 501),
        LATE.sign(),
        FOREIGN.sign(),
        "A" * 20_000,
    ],
)
async def test_a_credential_that_is_wrong_is_refused_and_no_other_is_asked(
    tmp_path: Path, token: str
) -> None:
    async with entering(tmp_path) as server:
        browser = server.browser(
            authorization=f"Bearer {token}".encode().decode("latin-1"), x_forwarded_user="ada"
        )
        is_known = token not in ("", "x") and not token.startswith("CPK_")
        assert (await browser.ask("GET", "/info")).status == (401 if is_known else 200)
        alone = server.browser(authorization=f"Bearer {token}".encode().decode("latin-1"))
        assert (await alone.ask("GET", "/info")).status == 401


async def test_an_expired_or_revoked_key_is_refused(tmp_path: Path) -> None:
    async with entering(tmp_path) as server:
        old = await issue_key(server.keys, "ada", expires_at=time.time() - 1)
        text = await issue_key(server.keys, "ada")
        good = await server.bearer(text).ask("GET", "/info")
        await server.keys.revoke(text.split("_")[1], time.time())
        revoked = await server.bearer(text).ask("GET", "/info")
        expired = await server.bearer(old).ask("GET", "/info")

    assert good.status == 200
    assert (revoked.status, expired.status) == (401, 401)
    assert revoked.json()["message"] == expired.json()["message"] == "The API key is not valid."


async def test_a_key_may_stand_in_a_header_of_its_own(tmp_path: Path) -> None:
    async with entering(tmp_path) as server:
        text = await issue_key(server.keys, "ada")

        assert await owners_of(server.browser(x_api_key=text)) == ["ada"]


@in_one_test("balancers", [[], ["127.0.0.1"]])
async def test_headers_of_a_proxy_are_believed_from_its_address_alone(
    tmp_path: Path, balancers: Sequence[str]
) -> None:
    seen: list[RunInput] = []

    def remember(run: RunInput) -> None:
        seen.append(run)

    proxy = {"addresses": balancers, "sign_in_addresses": ["10.0.0.0/8"]}
    settings = settings_of(tmp_path, proxy=proxy, forward_headers=["*"], deny_headers=["x-none"])
    async with entering(
        tmp_path, settings=settings, hooks=Hooks(before_request=remember)
    ) as server:
        text = await issue_key(server.keys, "ada")
        alone = await server.browser(x_forwarded_user="eve").ask("GET", "/info")
        both = server.browser(x_forwarded_user="eve", authorization=f"Bearer {text}")
        owners = await owners_of(both)

    assert alone.status == 401
    assert owners == ["ada"]
    assert "x-forwarded-user" not in seen[0].headers


async def test_a_key_is_no_business_of_agents_and_hooks(tmp_path: Path) -> None:
    seen: list[RunInput] = []
    async with entering(tmp_path, hooks=Hooks(before_request=seen.append)) as server:
        text = await issue_key(server.keys, "ada")
        await server.browser(authorization=f"Bearer {text}", x_other="1").run()
        await server.browser(x_api_key=text).run(thread="t2")
        await (await server.sign_in("jwt", "ada")).run(thread="t3")

    assert text not in repr(seen)
    assert [sorted({"authorization", "x-other"} & run.headers.keys()) for run in seen] == [
        ["x-other"],
        [],
        ["authorization"],
    ]


@in_one_test("name", ["authorization", "x-api-key", "x-forwarded-user", "x-tenant"])
async def test_a_header_that_comes_twice_is_refused(tmp_path: Path, name: str) -> None:
    async with entering(tmp_path) as server:
        twice = {name: "ada", name.title(): "eve"}
        answer = await server.browser(x_forwarded_user="ada").ask("GET", "/info", headers=twice)

    assert (answer.status, answer.json()["message"]) == (401, f"The header {name} comes twice.")


async def test_a_bound_token_is_for_one_request(tmp_path: Path) -> None:
    tokens = {"secrets": [SECRET]}
    settings = settings_of(tmp_path, service_tokens=tokens)
    signer = ServiceTokenSigner("agent", [SECRET])
    body = b'{"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": []}'
    async with entering(tmp_path, settings=settings) as server:
        token = signer.sign("POST agent/default/run", body)
        browser = server.bearer(token)
        other_body = await browser.ask("POST", "/agent/default/run", run_input())
        other_path = await browser.ask("POST", "/agent/default/suggest", body)
        other_method = await browser.ask("GET", "/agent/default/run")
        first = await browser.ask("POST", "/agent/default/run", body)
        again = await browser.ask("POST", "/agent/default/run", body)
        with_query = server.bearer(signer.sign("GET threads?limit=1"))
        listed = await with_query.ask("GET", "/threads?limit=1")

    assert [other_body.status, other_path.status, other_method.status] == [401, 401, 401]
    assert (first.status, again.status, listed.status) == (200, 401, 200)
    assert other_body.json()["message"] == "Token is for another body"
    assert again.json()["message"] == "Token was used before"


async def test_a_bound_token_is_good_once_at_all_servers_that_share_their_threads(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path}/threads.db"
    settings = settings_of(
        tmp_path, threads=store, api_keys={}, service_tokens={"secrets": [SECRET]}
    )
    token = ServiceTokenSigner("agent", [SECRET]).sign("GET info")
    async with (
        entering(tmp_path, settings=settings) as one,
        entering(tmp_path, settings=settings) as other,
    ):
        servers = [one, other] * 5
        found = await asyncio.gather(*(it.bearer(token).ask("GET", "/info") for it in servers))
    async with entering(tmp_path, settings=settings) as later:
        found.append(await later.bearer(token).ask("GET", "/info"))

    assert sorted(answer.status for answer in found) == [200, *[401] * 10]


async def test_a_signed_body_that_is_too_large_is_refused_as_such(tmp_path: Path) -> None:
    tokens = {"secrets": [SECRET]}
    settings = settings_of(tmp_path, service_tokens=tokens, max_body_bytes=1000)
    signer = ServiceTokenSigner("agent", [SECRET])
    body = b'{"a": "' + b"x" * 1000 + b'"}'
    async with entering(tmp_path, settings=settings) as server:
        browser = server.bearer(signer.sign("POST agent/default/run", body))
        answer = await browser.ask("POST", "/agent/default/run", body)

    assert (answer.status, answer.json()["message"]) == (
        413,
        "The request body is larger than 1000 bytes.",
    )


async def test_an_authorization_that_comes_twice_is_refused_before_a_hook_reads_one() -> None:
    def sign_in(connection: Any) -> str:
        return connection.headers["authorization"]

    async with browsing(authenticate=sign_in) as browser:
        twice = {"authorization": "ada", "Authorization": "eve"}
        answer = await browser.ask("GET", "/threads", headers=twice)

    assert answer.json()["message"] == "The header authorization comes twice."
    assert answer.status == 401


async def test_nobody_may_come_in_where_the_operator_says_so(tmp_path: Path) -> None:
    access = {"authenticate": WAYS, "anonymous": True}
    async with entering(tmp_path, settings=settings_of(tmp_path, access=access)) as server:
        assert await owners_of(server.browser()) == [""]
        assert (await server.bearer("wrong").ask("GET", "/info")).status == 401


async def test_a_hook_is_asked_about_what_no_scheme_knows(tmp_path: Path) -> None:
    def by_cookie(connection: Any) -> str | None:
        return connection.cookies.get("user")

    async with entering(tmp_path, authenticate=by_cookie) as server:
        text = await issue_key(server.keys, "ada")

        assert (await server.browser().ask("GET", "/info")).status == 401
        assert (await server.browser(cookie="user=key:1").ask("GET", "/info")).status == 401
        assert (await server.browser(cookie="user=service:a").ask("GET", "/info")).status == 401
        assert await owners_of(server.browser(cookie="user=eve")) == ["eve"]
        assert await owners_of(server.browser(cookie="user=eve", x_api_key=text)) == ["ada"]


async def test_a_hook_may_return_a_tenant_and_roles() -> None:
    def sign_in(connection: Any) -> Identity:
        return Identity(user="ada", tenant=connection.headers["x-tenant"], roles=["reader"])

    async with browsing(authenticate=sign_in) as browser:
        asked = await browser.ask("GET", "/threads", headers={"x-tenant": "acme"})
        run = await browser.ask("POST", "/agent/default/run", run_input(), {"x-tenant": "acme"})
        odd = await browser.ask("GET", "/threads", headers={"x-tenant": "a/b"})

    assert asked.status == 200
    assert run.events()[-1]["message"].startswith("You may not do this")
    assert odd.status == 500


@in_one_test("field", ["roles", "scopes"])
async def test_a_hook_that_returns_a_text_for_a_list_learns_why(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    def sign_in(connection: Any) -> Identity:
        return Identity(**{"user": "ada", field: "operator"})  # type: ignore[arg-type]

    async with browsing(authenticate=sign_in) as browser:
        assert (await browser.ask("GET", "/threads")).status == 500

    assert "Roles and scopes are lists of names" in caplog.text


@in_one_test("user", ["tenant:acme/ada", "", *HALVES])
async def test_a_hook_cannot_return_the_owner_of_a_tenant(user: str) -> None:
    def sign_in(connection: Any) -> Identity:
        return Identity(user=user)

    async with browsing(authenticate=sign_in) as browser:
        assert (await browser.ask("GET", "/threads")).status == 500


@in_one_test(
    ("names", "why"),
    [
        (["api_key"], "Did you mean 'api_keys'"),
        (["jwt"], "no keys"),
        (["proxy"], "proxy.sign_in_addresses is empty"),
        (["service_tokens"], "service_tokens.secrets is empty"),
    ],
)
def test_a_way_to_sign_in_that_cannot_work_is_refused_at_the_start(
    names: list[str], why: str
) -> None:
    settings = Settings.model_validate({"access": {"authenticate": names}, "threads": "memory"})
    with pytest.raises(ConfigurationFailed, match=why):
        CopilotRuntime(settings=settings)


@in_one_test(
    ("named", "section", "line"),
    [
        (
            [],
            {"jwt": {"issuer": "https://login.example.com", "audience": ["copilot"]}},
            "Unused settings jwt.issuer, jwt.audience: access.authenticate does not name jwt. "
            "Set access.authenticate: [jwt].",
        ),
        (
            ["service_tokens"],
            {"proxy": {"user_header": "x-user"}, "api_keys": {"store": "sqlite:access.db"}},
            "Unused settings proxy.user_header: access.authenticate does not name proxy. "
            "Set access.authenticate: [service_tokens, proxy].",
        ),
        (
            ["api_keys"],
            {},
            "Unused settings service_tokens.secrets: access.authenticate does not name "
            "service_tokens. Set access.authenticate: [api_keys, service_tokens].",
        ),
    ],
)
async def test_settings_of_a_way_to_sign_in_that_is_not_named_are_logged_at_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    named: Sequence[str],
    section: dict[str, Any],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    secrets = {"service_tokens": {"secrets": [SECRET]}} if named else {}
    settings = Settings.model_validate(
        {"threads": "memory", "access": {"authenticate": named}, **secrets, **section}
    )
    async with CopilotRuntime(ScriptedAdapter(), settings=settings).running():
        pass

    assert [record.getMessage() for record in caplog.records] == [line]
