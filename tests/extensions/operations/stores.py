"""Fill the stores of some settings, and show what is in them."""

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from anyio import Path as AsyncPath

from copilot_runtime.api.run_input import CheckpointKey
from copilot_runtime.extensions.access.api_keys.key import ApiKey
from copilot_runtime.extensions.access.api_keys.store import build_key_store, choose_address
from copilot_runtime.extensions.access.audit.entry import AuditRecord
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.extensions.knowledge.events.event import ResourceEvent
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.knowledge.identifiers import parse_identifier
from copilot_runtime.extensions.planner.build import build_log
from copilot_runtime.extensions.planner.log import PlanQuery, PlanSummary
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from copilot_runtime.storage.storage import open_storage
from copilot_runtime.threads.export import export_threads
from copilot_runtime.threads.store import Segment, ThreadKey
from copilot_runtime.threads.url import build_store
from tests.extensions.planner.crew import build_plan
from tests.extensions.tracing.store import make_span
from tests.threads.recorded import KEY, log_of, run_of, told, user

WAITING = CheckpointKey(*KEY, "agent")
"""A run that waits for a person."""

AFTER = ThreadKey("bob", "under way")
"""The thread with a run that does not end before its server dies."""


def build_settings(folder: Path, *, database: str = "", storage: str = "") -> Settings:
    """Return settings with every store: in files of a folder, or some of them elsewhere."""
    return make_settings(
        threads=database or f"sqlite:{folder}/threads.db",
        planner={"store": database or f"sqlite:{folder}/plans.db"},
        api_keys={"store": database or f"sqlite:{folder}/access.db"},
        events={"store": f"sqlite:{folder}/events.db"},
        audit={"file": f"{folder}/audit.jsonl"},
        telemetry={"store": f"sqlite:{folder}/traces.db"},
        knowledge={"storage": storage or f"local:{folder}/knowledge"},
    )


def make_settings(**values: str | Mapping[str, str]) -> Settings:
    """Return settings as a file would have them."""
    return Settings.model_validate(values)


async def fill(settings: Settings) -> None:
    """Write something of everything, as servers do that have died since."""
    async with aclosing(build_store(settings.threads)) as threads:
        await told(threads, run_of(messages=[user("u1", "What is 🏔?")]))
        await told(threads, run_of(run_id="r2", log_id="second"))
        await threads.update(KEY, name="Mountains", archived=True)
        run = run_of(AFTER, run_id="open", log_id="open")
        new = await threads.begin(run)
        await threads.write([Segment("open", log_of(run, new=new)[:-2])])
        for key in (WAITING, WAITING._replace(owner="", thread_id="none")):
            await threads.save_checkpoint(key, b"\x80 a run that waits")
    async with aclosing(build_log(settings.planner.store)) as plans:
        await plans.open()
        for id, status in (("over", "finished"), ("on", "running")):
            summary = PlanSummary(
                id=id, user="ann", thread_id="t", created_at=1.5, updated_at=2.5, status="running",
                title=f"Plan {id}",
            )  # fmt: skip
            lease, _ = await plans.create(summary, [build_plan("a")])
            await plans.append(lease, 2, [], status=status)  # pyright: ignore[reportArgumentType]  # one of them
    async with aclosing(build_key_store(choose_address(settings))) as keys:
        await keys.add(ApiKey(id="k", name="ci", user="ann", salt=b"\xff\x00", hash=b"h" * 32))
    async with aclosing(SqliteEventLog(settings.events.store[7:])) as events:
        about = parse_identifier("common.Message.m1")
        await events.append(
            *(ResourceEvent(detail_type=f"T{n}", resources=(about,)) for n in range(3))
        )
    AuditLog(settings.audit.file).write([AuditRecord(action="run", outcome="allowed")])
    async with aclosing(SqliteTraceStore(settings.telemetry.store[7:], days=0)) as traces:
        for name in ("a", "b"):
            traces.add(make_span(name * 32, name * 16))
        await traces.flush()
    async with aclosing(open_storage(settings.knowledge.storage)) as storage:
        await storage.put("resources/a b/é.json", b'{"x": "\\u2603"}')
        await storage.append("catalog.jsonl", b'{"uri": "a"}\n')
        await storage.put("vectors/1.bin", bytes(range(256)) * 300)


async def describe(settings: Settings) -> dict[str, Any]:
    """Return what is in all stores. Asking for it may end runs of servers that have died."""
    found: dict[str, Any] = {}
    async with aclosing(build_store(settings.threads)) as threads:
        found["secret"] = await threads.secret()
        found["threads"] = [line async for line in export_threads(threads)]
        found["waiting"] = await threads.find_checkpoint(WAITING)
        found["of no thread"] = await threads.find_checkpoint(
            WAITING._replace(owner="", thread_id="none")
        )
        again = run_of(run_id="r3", messages=[user("u1"), user("u9")])
        found["new messages"] = await threads.begin(again)
    async with aclosing(build_log(settings.planner.store)) as plans:
        await plans.open()
        listed = await plans.list_plans(PlanQuery(all_users=True))
        found["plans"] = [(plan, [*await plans.read(plan.id)]) for plan in listed]
        found["claimed"] = [lease.plan_id for lease in await plans.claim()]
    async with aclosing(build_key_store(choose_address(settings))) as keys:
        found["keys"] = [*await keys.list_keys()]
    async with aclosing(SqliteEventLog(settings.events.store[7:])) as events:
        found["events"] = (await events.read()).events
    found["audit"] = await AsyncPath(settings.audit.file).read_bytes()
    async with aclosing(SqliteTraceStore(settings.telemetry.store[7:], days=0)) as traces:
        found["traces"] = await traces.list_traces()
    async with aclosing(open_storage(settings.knowledge.storage)) as storage:
        found["objects"] = {key: await storage.get(key) for key in sorted(await storage.list())}
    return found
