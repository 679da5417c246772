"""What every store of API keys promises, asked of SQLite and of PostgreSQL."""

import asyncio
import sqlite3
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.api.scheme import (
    AuthenticationUnavailable,
    CredentialInvalid,
    Credentials,
)
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.extensions.access.api_keys.key import ApiKey, generate_key, split_key
from copilot_runtime.extensions.access.api_keys.postgres import PostgresKeys
from copilot_runtime.extensions.access.api_keys.store import build_key_store, choose_address
from copilot_runtime.extensions.access.authentication.api_keys import ApiKeyScheme
from copilot_runtime.extensions.settings import Settings
from tests.extensions.access.credentials import issue_key
from tests.extensions.cluster.kills.proxy import Proxy
from tests.extensions.planner.crew import wait_until
from tests.in_one_test import in_one_test
from tests.threads.cluster import Cluster

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/new folder/access.db"
    return request.getfixturevalue("database")


def make_key(user: str = "ada", **fields: Any) -> ApiKey:
    secret = generate_key()
    return ApiKey(id=secret.id, name="ci", user=user, salt=secret.salt, hash=secret.hash, **fields)


async def test_a_key_is_found_as_it_was_kept(address: str) -> None:
    store = build_key_store(address)
    full = make_key(tenant="acme", roles=("a", "b"), scopes=("threads:read",), expires_at=5.0)
    plain = make_key(created_at=1.0)
    await store.add(full)
    await store.add(plain)

    assert await store.find(full.id) == full
    assert await store.find("0" * 16) is None
    assert await store.list_keys() == [full, plain]
    await store.aclose()


async def test_what_another_process_revokes_is_refused_within_two_seconds(address: str) -> None:
    one, other = build_key_store(address), build_key_store(address)
    key = make_key()
    await one.add(key)
    assert await other.find(key.id) == key
    await one.revoke(key.id, 7.0)
    await one.revoke(key.id, 8.0)

    if isinstance(other, PostgresKeys):  # two seconds later
        other._clock = lambda: time.monotonic() + 2.1  # pyright: ignore[reportPrivateUsage]
    found = await other.find(key.id)
    assert found is not None and found.revoked_at == 7.0
    await one.aclose()
    await other.aclose()


async def test_a_nonce_is_new_once_for_all_processes_until_it_is_forgotten(address: str) -> None:
    one, other = build_key_store(address), build_key_store(address)
    found = await asyncio.gather(*(store.add_nonce("n", 10.0, 0.0) for store in [one, other] * 5))
    late = [await other.add_nonce("n", 10.0, 10.0), await one.add_nonce("m", 90.0, 10.1)]
    again = await other.add_nonce("n", 90.0, 10.1)

    assert sorted(found) == [False] * 9 + [True]
    assert (late, again) == ([False, True], True)
    await one.aclose()
    await other.aclose()


async def test_two_that_open_an_empty_store_at_once_share_it(address: str) -> None:
    stores = [build_key_store(address) for _ in range(4)]
    keys = [make_key() for _ in stores]
    await asyncio.gather(*(store.add(key) for store, key in zip(stores, keys, strict=True)))

    assert {key.id for key in await stores[0].list_keys()} == {key.id for key in keys}
    for store in stores:
        await store.aclose()


async def test_the_file_is_for_its_owner_alone_and_has_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "access.db"
    store = build_key_store(f"sqlite:{path}")
    text = await issue_key(store, "ada")
    await store.aclose()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text.split("_", 2)[2].encode() not in path.read_bytes()


async def test_a_file_that_is_none_lets_nobody_in_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.db"
    path.write_bytes(b"no database at all" * 100)
    scheme = ApiKeyScheme(Settings(threads="memory"), build_key_store(f"sqlite:{path}"))

    with pytest.raises(AuthenticationUnavailable):
        await scheme.authenticate(credentials("cpk_" + "0" * 16 + "_" + "x" * 43))
    assert "not a database" in caplog.text


async def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "access.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(StoreFailed) as failure:
        await build_key_store(f"sqlite:{path}").find("x")
    assert "later copilot-runtime (version 99)" in (failure.value.hint or "")


async def test_a_database_that_says_nothing_keeps_nobody_waiting(
    database: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.access.api_keys.postgres._TIMEOUT", 1.5)
    folder = str(cluster.data.parent)
    way = Proxy(Path(folder, ".s.PGSQL.5432"))
    async with way.listening(tmp_path / ".s.PGSQL.5432"):
        store = build_key_store(database.replace(folder, str(tmp_path)))
        assert await store.find("a") is None
        way.state = "stalled"
        async with asyncio.timeout(5):
            with pytest.raises(StoreFailed):
                await store.find("b")
        way.state = "open"

        assert await store.find("b") is None
        await store.aclose()


async def test_keys_and_nonces_wait_for_a_database_that_restarts(
    database: str, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(cluster.data.parent)
    way = Proxy(Path(folder, ".s.PGSQL.5432"))
    async with way.listening(tmp_path / ".s.PGSQL.5432"):
        address = database.replace(folder, str(tmp_path))
        store = PostgresKeys(address, lambda: 0.0)
        scheme = ApiKeyScheme(Settings(threads="memory"), store)
        text = await issue_key(store, "ada")
        way.state = "broken"
        identity = asyncio.create_task(scheme.authenticate(credentials(text)))
        is_new = asyncio.create_task(store.add_nonce("n", 10.0, 0.0))
        await wait_until(lambda: "cannot be reached" in caplog.text)
        way.state = "open"

        found = await identity
        assert found is not None and (found.user, await is_new) == ("ada", True)
        await scheme.aclose()
    assert "cannot be checked" not in caplog.text


async def test_a_database_that_is_away_is_one_line_in_the_log_which_says_why(
    database: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.access.api_keys.postgres._TIMEOUT", 0.2)
    way = Proxy(Path(cluster.data.parent, ".s.PGSQL.5432"))
    async with way.listening(tmp_path / ".s.PGSQL.5432"):
        way.state = "stalled"
        store = build_key_store(database.replace(str(cluster.data.parent), str(tmp_path)))
        scheme = ApiKeyScheme(Settings(threads="memory"), store)
        for _ in range(3):
            with pytest.raises(AuthenticationUnavailable):
                await scheme.authenticate(credentials("cpk_" + "0" * 16 + "_" + "x" * 43))
        await scheme.aclose()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "API keys cannot be checked: PostgreSQL (this machine/postgres) cannot be used: "
        "it does not answer."
    ]


async def test_what_was_written_before_its_answer_was_lost_is_written_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Pool.execute

    async def lose_answer(pool: Pool, work: Any) -> Any:
        return await execute(pool, partial(do_again, work))

    async def do_again(work: Any, connection: Any) -> Any:
        await work(connection)
        return await work(connection)

    store, key = build_key_store(database), make_key()
    monkeypatch.setattr(Pool, "execute", lose_answer)
    await store.add(key)
    with pytest.raises(StoreFailed):  # it may be ours, or somebody's who sends it again
        await store.add_nonce("n", 10.0, 0.0)
    monkeypatch.undo()

    assert (await store.list_keys(), await store.add_nonce("n", 10.0, 0.0)) == ([key], False)
    await store.aclose()


def credentials(key: str) -> Credentials:
    async def read_body() -> bytes:
        return b""

    headers = {"authorization": f"Bearer {key}"}
    return Credentials(headers=headers, peer="127.0.0.1", method="", read_body=read_body)


async def test_it_is_noted_once_a_minute_when_a_key_was_used(address: str) -> None:
    store = build_key_store(address)
    text = await issue_key(store, "ada")
    now = time.time()
    scheme = ApiKeyScheme(Settings(threads="memory"), store, lambda: now)
    for _ in range(5):
        await scheme.authenticate(credentials(text))
        now += 10
    await scheme.aclose()
    again = build_key_store(address)

    assert [round(now - (key.used_at or 0)) for key in await again.list_keys()] == [50]
    await again.aclose()


CHANGES: list[Callable[[str], str]] = [
    lambda text: text[:-1],
    lambda text: text + "x",
    lambda text: text.upper(),
    lambda text: text.replace("_", ""),
    lambda text: text[:21] + text[21:][::-1],
    lambda text: "cpk_" + "0" * 16 + text[20:],
    lambda text: text + "\n",
    lambda text: "cpk_" + "x" * 10_000,
]


@in_one_test("change", CHANGES)
async def test_a_key_that_was_changed_is_none(tmp_path: Path, change: Callable[[str], str]) -> None:
    store = build_key_store(f"sqlite:{tmp_path}/access.db")
    text = change(await issue_key(store, "ada"))
    scheme = ApiKeyScheme(Settings(threads="memory"), store)

    if text.startswith("cpk_") and not text.endswith("\n"):
        with pytest.raises(CredentialInvalid, match=r"not valid\.$"):
            await scheme.authenticate(credentials(text))
    assert split_key(text) is None or text != await issue_key(store, "ada")
    await scheme.aclose()


@in_one_test(
    ("threads", "store", "address"),
    [
        ("sqlite:.copilot/threads.db", "", "sqlite:.copilot/access.db"),
        ("sqlite:///data/threads.db", "", "sqlite:data/access.db"),
        ("sqlite:////srv/threads.db", "", "sqlite:/srv/access.db"),
        ("memory", "", "sqlite:.copilot/access.db"),
        ("postgresql://localhost/app", "", "postgresql://localhost/app"),
        ("memory", "sqlite:keys.db", "sqlite:keys.db"),
    ],
)
def test_keys_are_beside_the_threads(threads: str, store: str, address: str) -> None:
    settings = Settings.model_validate({"threads": threads, "api_keys": {"store": store}})

    assert choose_address(settings) == address


@in_one_test("address", ["", "memory", "sqlite:", "redis://x"])
def test_keys_cannot_be_kept_everywhere(address: str) -> None:
    with pytest.raises(ConfigurationFailed):
        build_key_store(address)


async def test_many_wrong_keys_take_no_memory(tmp_path: Path) -> None:
    store = build_key_store(f"sqlite:{tmp_path}/access.db")
    for number in range(10_050):
        await store.find(f"{number:016x}")

    assert sys.getsizeof(store.__dict__["_cache"]) < 1_000_000
    await store.aclose()
