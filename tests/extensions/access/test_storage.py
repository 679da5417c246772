"""Limits on stored bytes: who is told, who is refused, and what is still possible then."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api.identity import Identity
from copilot_runtime.app.extension import Extension
from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.extensions.access.limits import storage
from copilot_runtime.extensions.access.limits.storage import StorageFull, StorageLimits
from copilot_runtime.extensions.access.settings import LimitSettings
from copilot_runtime.testing import ScriptedAdapter, say
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import ThreadStore
from tests.threads.recorded import KEY, run_of, told

httpx = pytest.importorskip("httpx")
pytestmark = pytest.mark.anyio

ANN = Identity(user="ann", tenant="acme")


class Stores(NamedTuple):
    """What is counted."""

    threads: ThreadStore
    extensions: Sequence[Extension]


async def authenticate(connection: HTTPConnection) -> Identity | None:
    user = connection.headers.get("x-user")
    return Identity(user=user, tenant="acme") if user else None


@asynccontextmanager
async def serve(**limits: int) -> AsyncGenerator[Any, None]:
    settings = Settings.model_validate({"limits": limits, "threads": "memory"})
    adapter = ScriptedAdapter(*[say("x" * 600)] * 99)
    app = CopilotRuntime(adapter=adapter, settings=settings, authenticate=authenticate).app("/api")
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api") as one:
            yield one


async def ask(client: Any, user: str, thread: str) -> str:
    """Return the events of an answer, as one text."""
    messages = [{"id": f"u-{thread}", "role": "user", "content": "Hello"}]
    run: dict[str, Any] = {"threadId": thread, "runId": f"r-{thread}"}
    run |= {"messages": messages, "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    reply = await client.post("/agent/default/run", json=run, headers={"x-user": user})
    return reply.text


async def test_who_stores_too_much_is_told_once_then_refused_and_may_delete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_COUNT_SECONDS", "_FULL_SECONDS"):
        monkeypatch.setattr(storage, name, -1)
    async with serve(storage_per_user=9_000) as client:
        answers: list[str] = []
        while not answers or "LIMIT_EXCEEDED" not in answers[-1]:
            answers.append(await ask(client, "ann", f"t{len(answers)}"))
        told_at = [number for number, one in enumerate(answers) if "Please delete" in one]
        assert len(told_at) == 1 and 0 < told_at[0] < len(answers) - 1
        assert "of conversations; at most 9,000 bytes are kept. Delete" in answers[-1]
        assert "RUN_FINISHED" in await ask(client, "bob", "t0")
        head = {"x-user": "ann"}
        assert (await client.get("/threads/t0/messages", headers=head)).status_code == 200
        listed = (await client.get("/threads?agentId=default", headers=head)).json()["threads"]
        assert len(listed) == len(answers) - 1  # nothing of the refused run was stored
        (status,) = (await client.get("/access/whoami", headers=head)).json()["limits"]
        assert (status["kind"], status["limit"], status["used"] >= 9_000) == (
            "storage",
            9_000,
            True,
        )
        for thread in ("t0", "t1"):
            assert (await client.delete(f"/threads/{thread}", headers=head)).status_code == 200
        assert "RUN_FINISHED" in await ask(client, "ann", "t9")


async def test_a_notice_that_is_no_longer_true_is_not_given() -> None:
    store = MemoryThreads()
    for number in range(9):
        await told(store, run_of(key=KEY._replace(owner="tenant:acme/ann", id=f"t{number}")))
    used = await store.count_bytes("tenant:acme/ann")
    settings = LimitSettings(storage_per_user=used + 1)
    limits = StorageLimits(settings, Stores(store, []), clock=lambda: 0.0)  # counts take no time
    (await limits.admit(ANN, ANN.owner))()
    for number in range(5):
        await store.delete(KEY._replace(owner="tenant:acme/ann", id=f"t{number}"))
    await limits.admit(ANN, ANN.owner, size=used)

    assert limits.take_notice(ANN.owner) == ""


async def test_all_users_of_a_tenant_count_together() -> None:
    store = MemoryThreads()

    class Files(Extension):
        name = "files"

        async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> Mapping[str, int]:
            return {"files": 400} if is_prefix else {}

    for owner in ("tenant:acme/ann", "tenant:acme/bob", "tenant:acme2/ann"):
        await told(store, run_of(key=KEY._replace(owner=owner)))
    used = await store.count_bytes("tenant:acme/", is_prefix=True)
    assert used == 2 * await store.count_bytes("tenant:acme/ann") > 0
    stores = Stores(store, [Files()])
    full = StorageLimits(LimitSettings(storage_per_tenant=used + 400), stores)
    with pytest.raises(StorageFull, match=r"^Your organization has stored .* 400 bytes of files;"):
        await full.admit(ANN, ANN.owner, is_continuation=False)
    await full.admit(ANN, ANN.owner, is_continuation=True)
    await StorageLimits(LimitSettings(storage_per_tenant=used + 401), stores).admit(
        ANN, ANN.owner, is_continuation=False
    )


async def test_bytes_count_while_a_store_counts_them() -> None:
    counting, go_on = asyncio.Event(), asyncio.Event()
    go_on.set()

    class Slow(MemoryThreads):
        async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> int:
            counting.set()
            await go_on.wait()
            return 0

    settings = LimitSettings(storage_per_user=100)
    limits = StorageLimits(settings, Stores(Slow(), []), clock=lambda: 0.0)
    (await limits.admit(ANN, ANN.owner, size=100))()
    counting.clear()
    go_on.clear()
    again = asyncio.create_task(limits.admit(ANN, ANN.owner))
    await counting.wait()
    with pytest.raises(StorageFull, match="100 bytes are being stored"):
        await limits.admit(ANN, ANN.owner)
    go_on.set()
    await again


async def test_a_store_that_cannot_count_limits_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryThreads):
        async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> int:
            raise StoreFailed("The disk is away.")

    limits = StorageLimits(LimitSettings(storage_per_user=1), Stores(Broken(), []))
    await limits.admit(ANN, ANN.owner, is_continuation=False)
    assert "Storage cannot be counted and is not limited: The disk is away." in caplog.text
