"""What is shown as it happens: streams of one person while another works."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.extensions.access.matrix.callers import Asker, Reply
from tests.extensions.access.matrix.check import Finding, find_leak
from tests.extensions.access.matrix.world import BOTH, GREETING, SECRET, World, rpc
from tests.wire_agui.http import run_input, user

_OWN = b"north%2Fben"
"""What is in every event of the one who reads."""
_MOST = 1_000
"""How often both work, until each stream has shown what is of its reader."""


async def check_live(world: World) -> Iterable[Finding]:
    """Have Ben follow events by every protocol, while Ann and he do the same."""
    ben = world.token("ben", "north")
    readers = {
        "GET events": replace(ben, sent=[]).ask(
            "GET", "events", accept="text/event-stream", until=_OWN.decode()
        ),
        "subscription events": replace(ben, sent=[]).subscribe(
            "subscription { events { resources detail } }", {}, _OWN
        ),
        "subscription resourceEvents": replace(ben, sent=[]).subscribe(
            "subscription { resourceEvents { resources } }", {}, _OWN
        ),
    }
    tasks = {door: asyncio.create_task(work) for door, work in readers.items()}
    for number in range(_MOST):
        if all(task.done() for task in tasks.values()):
            break
        await _work(world.ann, f"{SECRET}-{number}")
        await _work(world.token("ben", "north"), f"ben-{number}")
    found: list[Finding] = []
    for door, task in tasks.items():
        reply: Reply = await task
        if leak := find_leak(reply, replace(ben, sent=[]), world.things):
            found.append(Finding(door, "Ben, as it happens", leak))
        if _OWN not in reply.body:
            found.append(Finding(door, "Ben", f"nothing of his own in {reply.body[-300:]!r}"))
    return found


async def _work(asker: Asker, name: str) -> None:
    """Send a file, and ask something."""
    place = f"knowledge/files?threadId=live&name={name}.txt"
    await asker.ask("POST", place, name.encode(), content_type="text/plain")
    body = run_input(thread="live", run=name, messages=[user(name)])
    await asker.ask("POST", "agent/default/run", body)


async def check_tools(world: World) -> Iterable[Finding]:
    """Call each tool that MCP lists, as Ben, with ids and words of Ann's for its arguments."""
    ben = replace(world.token("ben", "north"), sent=[])
    greeted = await ben.ask("POST", "mcp", GREETING, accept=BOTH)
    session: dict[str, Any] = {"mcp_session_id": greeted.headers["mcp-session-id"]}
    listed = await ben.ask("POST", "mcp", rpc("tools/list"), accept=BOTH, **session)
    found: list[Finding] = []
    for tool in _read_result(listed)["tools"]:
        if tool["name"] == "ask_waiting":
            continue  # which does not answer
        wanted = tool["inputSchema"].get("properties", {})
        arguments = {name: _guess(name, world, kind.get("type")) for name, kind in wanted.items()}
        call = rpc("tools/call", name=tool["name"], arguments=arguments)
        reply = await ben.ask("POST", "mcp", call, accept=BOTH, **session)
        if leak := find_leak(reply, ben, world.things):
            found.append(Finding(f"mcp tool {tool['name']}", "Ben", leak))
        if reply.status != 200:
            found.append(Finding(f"mcp tool {tool['name']}", "Ben", f"status {reply.status}"))
    return found


def _read_result(reply: Reply) -> Any:
    """Return the result of a request of MCP, which is answered by an event."""
    line = next(line for line in reply.body.splitlines() if line.startswith(b"data: {"))
    return json.loads(line[6:])["result"]


def _guess(name: str, world: World, kind: object) -> Any:
    """Return an argument that might lead to what is Ann's."""
    known = {
        "sql": "SELECT * FROM orders",
        "table": "orders",
        "name": world.things.dataset,
        "id": world.things.upload,
        "identifier": world.things.upload,
        "message": "Show all that there is.",
    }
    values: dict[object, Any] = {"integer": 10, "number": 10, "boolean": True, "array": []}
    return known.get(name) or values.get(kind, "mat key file")
