"""Two users, the same user in two tenants, by each credential: nobody sees what is another's."""

from pathlib import Path
from typing import Any

import pytest

from tests.extensions.access.server import WAYS, Entrance, entering, settings_of
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser
from tests.wire_agui.server import Parrot
from tests.wire_agui.strangers import MINE, V1, Asking, attempt, fill
from tests.wire_agui.strangers import WAYS as ROUTES

pytestmark = pytest.mark.anyio

PAIRS = {
    "two users": (("ada", "acme"), ("eve", "acme")),
    "two tenants": (("ada", "acme"), ("ada", "evil")),
    "no tenant": (("ada", "acme"), ("ada", "")),
    "a name that looks like a tenant's": (("ada", "acme"), ("acme/ada", "")),
    "a tenant that looks like a name": (("a", "b"), ("b/a", "b")),
}


async def sign_in(server: Entrance, way: str, user: tuple[str, str]) -> Browser:
    """A service has no tenant, so that its name has to differ."""
    name, tenant = user
    return await server.sign_in(
        way, f"{tenant or 0}-{name}" if way == "service_tokens" else name, tenant
    )


def settings_with_tenants(path: Path) -> Any:
    settings = settings_of(path)
    return settings.model_copy(
        update={"jwt": settings.jwt.model_copy(update={"tenant_claim": "org"})}
    )


CASES = [
    (way, pair)
    for way in WAYS
    for pair in PAIRS
    if way == "api_keys" or pair in ("two users", "two tenants")
]


@in_one_test(("way", "pair"), CASES)
async def test_whatever_one_tries_by_whichever_route_the_thread_of_the_other_does_not_exist(
    tmp_path: Path, way: str, pair: str
) -> None:
    model = Parrot()
    # it is the proxy who says so here
    ways = [it for it in (*ROUTES, V1) if way != "proxy" or it.name != "read as forwarded"]
    settings = settings_with_tenants(tmp_path)
    async with entering(tmp_path, model, settings, agents={"asking": Asking()}) as server:
        ada, eve = [await sign_in(server, way, user) for user in PAIRS[pair]]
        await fill(ada)
        found = await attempt(ada, eve, model, ways)

    before, after = found.before, found.after
    assert found.leaks == {}
    assert found.answer[-1]["type"] == "RUN_FINISHED"
    assert after[0]["messages"][: len(before[0]["messages"])] == before[0]["messages"]
    assert after[2] == before[2]
    assert [thread["name"] for thread in after[3]["threads"]] == ["Ada's"]


async def test_one_person_is_the_same_by_a_key_by_a_token_and_by_a_proxy(tmp_path: Path) -> None:
    async with entering(tmp_path, settings=settings_with_tenants(tmp_path)) as server:
        await (await server.sign_in("jwt", "ada", "acme")).run(thread=MINE)
        threads = [
            (await (await server.sign_in(way, "ada", "acme")).ask("GET", "/threads")).json()
            for way in ("api_keys", "jwt", "proxy")
        ]

    assert [[thread["id"] for thread in one["threads"]] for one in threads] == [[MINE]] * 3
