"""What `access` tells: each about themselves, and operators about all, without a secret."""

from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import Settings
from tests.extensions.access.credentials import SECRET, issue_key
from tests.extensions.access.server import entering, settings_of
from tests.in_one_test import in_one_test
from tests.wire_agui.server import browsing

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
        assert (await user.ask("POST", path, {})).status == 405


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
