"""Asks at doors and judges the answers: who was let in, and whether one person saw another's."""

import asyncio
import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.policies.ownership import UPLOAD
from tests.extensions.access.matrix.callers import Asker, Reply
from tests.extensions.access.matrix.credentials import BAD, sign_in, sign_with
from tests.extensions.access.matrix.credentials import serve_with as serve
from tests.extensions.access.matrix.rows import ROWS
from tests.extensions.access.matrix.world import BOTH, GREETING, OWNER, SECRET, Things, World, rpc
from tests.wire_agui.http import run_input, user


@dataclass(frozen=True)
class Finding:
    """What is wrong at a door."""

    door: str
    who: str
    problem: str

    def __str__(self) -> str:
        return f"{self.door}, {self.who}: {self.problem}"


def _encode_secret() -> Sequence[str]:
    """Return the word of Ann as it may be written: plain, or in Base64 at any place."""
    found = [SECRET]
    for before in range(3):
        text = base64.b64encode(b"x" * before + SECRET.encode() + b"xx").decode()
        found.append(text[4 if before else 0 : -8])
    return found


SECRETS = _encode_secret()


def find_leak(reply: Reply, asker: Asker, things: Things) -> str:
    """Return what an answer shows of Ann, if it does; it may repeat the ids that were sent."""
    text = reply.everything
    sent = b"".join(asker.sent).decode(errors="replace")
    for secret in SECRETS:
        if secret.lower() in text.lower() and secret not in sent:
            return f"{secret} in {_cut(text, secret)}"
    for one in fields(things):
        value: str = getattr(things, one.name)
        if value and value in text and value not in sent:
            return f"her {one.name} in {_cut(text, value)}"
    return f"her name in {_cut(text, OWNER)}" if OWNER in text and OWNER not in sent else ""


def _cut(text: str, part: str) -> str:
    place = text.lower().index(part.lower())
    return repr(text[max(0, place - 80) : place + 60])


async def check_stranger(world: World, door: str, credential: str) -> Iterable[Finding]:
    """Ask as nobody: only what is for everybody may answer, and it shows nothing of anybody."""
    row = ROWS[door]
    asker = await BAD[credential](world)
    reply = await row.ask(replace(asker, sent=[]), world.things)
    found: list[str] = []
    expected: tuple[int, ...] = (200, 501) if row.kind == "public" else (401,)
    if "megabyte" in credential and door.startswith("grpc"):
        expected = (429,)  # gRPC itself takes no such headers
    if reply.status not in expected:
        found.append(f"status {reply.status} in place of {expected[0]}: {reply.body[:200]!r}")
    if leak := find_leak(reply, asker, world.things):
        found.append(leak)
    return [Finding(door, credential, one) for one in found]


async def check_replay(world: World, door: str) -> Iterable[Finding]:
    """Ask twice with the same token of a service: it is good once, and for that door alone."""
    row = ROWS[door]
    if row.kind in ("public", "token"):
        return []
    known: dict[tuple[str, bytes], str] = {}
    signing = sign_with("shop")

    def sign(operation: str, body: bytes) -> str:
        return known.setdefault((operation, body), signing(operation, body))

    asker = serve(world, sign)
    made_up = world.things.make_up()
    replies = [await row.ask(asker, made_up) for _ in range(2)]
    first, second = (reply.status for reply in replies)
    found: list[str] = []
    if first == 401 or (first >= 500 and not _may_fail(door)):
        found.append(f"a good token gets {first}: {replies[0].body[:200]!r}")
    if second != 401:
        found.append(f"a used token gets {second}: {replies[1].body[:200]!r}")
    return [Finding(door, "a used token", one) for one in found]


_MAY_FAIL = ("transcribe", "CreateCompletions")
"""Doors behind which nobody has set anything up."""


def _may_fail(door: str) -> bool:
    return any(name in door for name in _MAY_FAIL)


async def check_unscoped(world: World, door: str, asker: Asker) -> Iterable[Finding]:
    """Ask with a key of Ann's that may do nothing: it shows nothing of hers."""
    asker = replace(asker, sent=[])
    reply = await ROWS[door].ask(asker, world.things)
    leak = find_leak(reply, asker, replace(world.things, session=""))
    if reply.status >= 500 and ROWS[door].kind != "public" and not _may_fail(door):
        leak = f"status {reply.status}: {reply.body[:200]!r}"
    return [Finding(door, "a key without scopes", leak)] if leak and "whoami" not in door else []


async def check_others(
    world: World, doors: Iterable[str], kind: str, name: str, tenant: str, sent: list[bytes]
) -> Iterable[Finding]:
    """Ask as somebody else for what is Ann's: it does not exist, and no answer has any of it.

    `sent` is what they have sent before: what they made themselves may have ids of hers, too.
    """
    found: list[Finding] = []
    asker = await sign_in(world, kind, name, tenant)
    one = replace(asker, sent=sent)
    who = f"{tenant}/{name} by {kind}"
    for door in doors:
        row = ROWS[door]
        if row.kind in ("public", "token"):
            continue
        if kind == "proxy" and door.startswith("grpc"):
            continue  # no proxy is between us and these
        reply = await row.ask(one, world.things)
        if leak := find_leak(reply, one, world.things):
            found.append(Finding(door, who, leak))
        if reply.status in (0, 401) or (reply.status >= 500 and not _may_fail(door)):
            found.append(Finding(door, who, f"status {reply.status}: {reply.body[:200]!r}"))
    return found


async def check_existence(world: World, doors: Iterable[str]) -> Iterable[Finding]:
    """Compare what two strangers get: for what Ann has, and for what nobody has."""
    askers = [await sign_in(world, "jwt", name, "north") for name in ("bob", "bea")]
    found: list[Finding] = []
    for door in doors:
        row = ROWS[door]
        if row.kind in ("public", "token") or _is_noisy(door):
            continue
        real, unreal = world.things, world.things.make_up()
        await _wait_for_files(world)
        first = normalize(await row.ask(askers[0], real), real)
        second = normalize(await row.ask(askers[1], unreal), unreal)
        if first != second:
            found.append(
                Finding(door, "somebody who asks for what is not there", f"{first}\n{second}")
            )
    return found


async def _wait_for_files(world: World) -> None:
    """Wait until the files that these two have sent are read: one may be before the other."""
    knowledge = world.runtime.get(Knowledge)
    assert knowledge is not None
    is_reading = True
    async with asyncio.timeout(60):
        while is_reading:
            uploads = await knowledge.uploads.get_many(
                await knowledge.resources.find_by_type(UPLOAD)
            )
            is_reading = any(it.state == "reading" for it in uploads.values())


def _is_noisy(door: str) -> bool:
    """Return whether its answers tell in what order things were done at once."""
    return "copilot/" in door


def normalize(reply: Reply, things: Things) -> str:
    """Return an answer without the ids that were asked for, times and what is random."""
    text = f"{reply.status}\n{reply.body.decode(errors='replace')}"
    for one in fields(things):
        value: str = getattr(things, one.name)
        if value:
            text = text.replace(value, f"<{one.name}>")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{12,}", "<id>", text)
    text = re.sub(r"[A-Za-z0-9_~-]{30,}", "<id>", text)
    text = re.sub("bob|bea", "somebody", text)  # after the ids: "bea" is hexadecimal, too
    return re.sub(r"\d[\d.:TZ+-]*", "0", text)


async def check_control(world: World, doors: Iterable[str]) -> Iterable[Finding]:
    """Ask as Ann: she finds what is hers, so that the doors are known to be open."""
    found: list[Finding] = []
    for door in doors:
        row = ROWS[door]
        if not row.shows:
            continue
        reply = await row.ask(world.ann, world.things)
        if f"{SECRET}{row.shows}" not in reply.everything:
            found.append(Finding(door, "Ann", f"nothing of hers in {reply.body[:300]!r}"))
    return found


async def look(world: World) -> Mapping[str, str]:
    """Return all that Ann has, to see whether anybody has changed it."""
    doors = [door for door, row in ROWS.items() if row.shows and not _is_noisy(door)]
    return {
        door: normalize(await ROWS[door].ask(world.ann, world.things), world.things)
        for door in doors
    }


async def check_operator(world: World, doors: Iterable[str]) -> Iterable[Finding]:
    """Ask as an operator: what is not in the scope `operate` is no business of theirs."""
    found: list[Finding] = []
    asker = replace(world.operator, sent=[])
    for door in doors:
        row = ROWS[door]
        if row.kind != "own" or row.changes or _is_for_operators(door):
            continue
        reply = await row.ask(asker, world.things)
        if leak := find_leak(reply, asker, world.things):
            found.append(Finding(door, "an operator", leak))
    return found


def _is_for_operators(door: str) -> bool:
    """Return whether operators see what is everybody's there: docs/access/roles.md."""
    return "plan" in door.lower() or door == "GET ?query="


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
