"""What a stranger tries at the thread of somebody else, at any server and by any credential."""

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import HTTPConnection

from copilot_runtime import Events, RunInput
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.api.events import AgentState, Interrupt
from copilot_runtime.base.errors import AuthenticationFailed
from tests.wire.client import STATE, chat
from tests.wire_agui.http import Answer, Browser, Event, connect_input, run_input
from tests.wire_agui.server import Parrot

MINE = "Ada's own thread"
NOBODYS = "Bob's own thread"
"""As long as the other, so that answers which repeat the id are as long."""


def by_token(connection: HTTPConnection) -> str:
    """Return who has the token: ada, or eve."""
    scheme, _, user = connection.headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or user not in ("ada", "eve"):
        raise AuthenticationFailed("Who are you?")
    return user


class Asking:
    """An agent that asks a person, and has a state."""

    description = ""

    async def run(self, run: RunInput) -> Events:
        for event in say(f"Answers: {len(run.resume)}", id=f"asked-{run.run_id}"):
            yield event
        yield AgentState(agent="asking", state={"secret": 42})
        if not run.resume:
            yield Interrupt(interrupt_id="i1", reason="approval", message="Really?")


class Way(NamedTuple):
    """One way to reach a thread: what is asked of the id."""

    name: str
    ask: Callable[[Browser, str], Any]


def rest(method: str, path: str, body: Any = None, **headers: str) -> Callable[[Browser, str], Any]:
    async def ask(browser: Browser, thread: str) -> Answer:
        at = path.replace("{}", quote(thread, safe=""))
        given = json.loads(json.dumps(body).replace('"{}"', json.dumps(thread)))
        return await browser.ask(method, at, given, headers)

    return ask


def single(method: str, body: Any = None, **params: str) -> Callable[[Browser, str], Any]:
    envelope = {"method": method, "params": params, **({} if body is None else {"body": body})}
    return rest("POST", "", envelope)


def resource(method: str, path: str, body: Any = None) -> Callable[[Browser, str], Any]:
    async def ask(browser: Browser, thread: str) -> Answer:
        at = path.replace("{}", quote(thread, safe=""))
        return await browser.envelope("resource/request", body, path=at, httpMethod=method)

    return ask


def spelt(change: Callable[[str], str]) -> Callable[[Browser, str], Any]:
    async def ask(browser: Browser, thread: str) -> Answer:
        return await browser.ask("GET", f"/threads/{change(thread)}/messages")

    return ask


def graphql(query: str, **variables: Any) -> Callable[[Browser, str], Any]:
    return rest("POST", "", {"query": query, "variables": variables})


def run_of(thread: str = "{}", **fields: Any) -> dict[str, Any]:
    return run_input(thread=thread, run="eve-1", **fields)


RENAME = {"agentId": "default", "name": "Eve's"}
RESUME = [{"interruptId": "i1", "status": "resolved", "payload": "yes"}]
FORGED = base64.b64encode(json.dumps({"owner": "ada"}).encode()).decode()
AT = "/threads/{}"
ASK_STATE = {"data": {"threadId": "{}", "agentName": "asking"}}
STOP = "mutation($run: String!) { stopCopilotResponse(runId: $run) }"

WAYS = [
    Way("run", rest("POST", "/agent/default/run", run_of())),
    Way("run with a known message", rest("POST", "/agent/default/run", run_of(messages=[]))),
    Way("run of another agent", rest("POST", "/agent/asking/run", run_of())),
    Way("run as the base", rest("POST", "", run_of())),
    Way("run in an envelope", single("agent/run", run_of(), agentId="default")),
    Way("run with the same run id", rest("POST", "/agent/default/run", run_of() | {"runId": "r"})),
    Way("run with a parent", rest("POST", "/agent/default/run", run_of(parentRunId="r"))),
    Way("run with an owner", rest("POST", "/agent/default/run", run_of(owner="ada", user="ada"))),
    Way(
        "run with properties",
        rest("POST", "/agent/default/run", run_of(forwardedProps={"user": "ada"})),
    ),
    Way("resume", rest("POST", "/agent/asking/run", run_of(resume=RESUME))),
    Way(
        "resume as of old",
        rest(
            "POST",
            "/agent/asking/run",
            run_of(forwardedProps={"command": {"resume": "yes", "interruptEvent": "i1"}}),
        ),
    ),
    Way("suggest", rest("POST", "/agent/default/suggest", run_of())),
    Way("suggest in an envelope", single("agent/suggest", run_of(), agentId="default")),
    Way("connect", rest("POST", "/agent/default/connect", connect_input("{}"))),
    Way("connect to the other agent", rest("POST", "/agent/asking/connect", connect_input("{}"))),
    Way("connect in an envelope", single("agent/connect", connect_input("{}"), agentId="default")),
    Way("stop", rest("POST", "/agent/default/stop/{}")),
    Way("stop by an empty body", rest("POST", "/agent/default/stop/{}", {})),
    Way("stop by run", rest("POST", "/agent/default/stop/{}", {"runId": "r"})),
    Way("stop by live run", rest("POST", "/agent/default/stop/{}", {"runId": "live"})),
    Way("stop in an envelope", single("agent/stop", agentId="default", threadId="{}")),
    Way(
        "stop by live run in an envelope",
        single("agent/stop", {"runId": "live"}, agentId="default", threadId="{}"),
    ),
    Way("messages", rest("GET", f"{AT}/messages")),
    Way("events", rest("GET", f"{AT}/events")),
    Way("state", rest("GET", f"{AT}/state")),
    Way("messages without a body", rest("HEAD", f"{AT}/messages")),
    Way("rename", rest("PATCH", AT, RENAME)),
    Way("take the name away", rest("PATCH", AT, {"name": ""})),
    Way("archive", rest("POST", f"{AT}/archive", {"agentId": "default"})),
    Way("archive by change", rest("PATCH", AT, {"archived": True})),
    Way("unarchive", rest("PATCH", AT, {"agentId": "default", "archived": False})),
    Way("delete", rest("DELETE", AT, {"agentId": "default"})),
    Way("delete without a body", rest("DELETE", AT)),
    Way("messages as a resource", resource("GET", f"{AT}/messages")),
    Way("events as a resource", resource("GET", f"{AT}/events")),
    Way("state as a resource", resource("GET", f"{AT}/state")),
    Way("rename as a resource", resource("PATCH", AT, RENAME)),
    Way("archive as a resource", resource("POST", f"{AT}/archive", {"agentId": "default"})),
    Way("unarchive as a resource", resource("PATCH", AT, {"archived": False})),
    Way("delete as a resource", resource("DELETE", AT, {"agentId": "default"})),
    Way("list", rest("GET", "/threads")),
    Way("list with archived", rest("GET", "/threads?includeArchived=true&limit=200")),
    Way("list of an agent", rest("GET", "/threads?agentId=default&includeArchived=true")),
    Way("list of an owner", rest("GET", "/threads?owner=ada&user=ada&createdById=ada")),
    Way("list by owner twice", rest("GET", "/threads?agentId=&agentId=default&owner=ada")),
    Way("list from the top", rest("GET", f"/threads?cursor={10**17}.{10**6}")),
    Way("list by a forged cursor", rest("GET", f"/threads?cursor={FORGED}")),
    Way("list as a resource", resource("GET", "/threads?includeArchived=true")),
    Way("read as another by header", rest("GET", f"{AT}/messages", **{"x-user-id": "ada"})),
    Way("read as forwarded", rest("GET", f"{AT}/messages", **{"x-forwarded-user": "ada"})),
    Way(
        "delete in disguise",
        rest("POST", f"{AT}/messages", **{"x-http-method-override": "DELETE"}),
    ),
    Way("read by a cookie", rest("GET", f"{AT}/messages", cookie="user=ada; session=ada")),
    Way("encoded twice", spelt(lambda id: quote(quote(id, safe=""), safe=""))),
    Way("in capitals", spelt(lambda id: quote(id.upper()))),
    Way("with a blank after it", spelt(lambda id: quote(id) + "%20")),
    Way("with a NUL", spelt(lambda id: quote(id) + "%00")),
    Way("with the owner before it", spelt(lambda id: "ada%2F" + quote(id))),
    Way("by way of above", spelt(lambda id: f"x/../{quote(id)}")),
    Way("loadAgentState", graphql(STATE, **ASK_STATE)),
    Way("stop by GraphQL", graphql(STOP, run="live")),
]
V1 = Way("GraphQL", rest("POST", "", chat(threadId="{}")))


def without(answer: Answer, thread: str) -> tuple[int, dict[str, str], bytes]:
    """Return all that an answer says, but for the id that was asked for, and the model's own."""
    body = re.sub(rb"answer-\d+", b"ANSWER", answer.body)
    for form in (thread, thread.upper(), quote(thread), quote(thread, safe="")):
        body = body.replace(json.dumps(form)[1:-1].encode(), b"THREAD")
    told = {name: value for name, value in answer.headers.items() if name != "date"}
    return answer.status, told, body


async def shown(browser: Browser) -> Any:
    """Return all that its owner can see of the thread."""
    at = f"/threads/{quote(MINE)}"
    reads = [f"{at}/messages", f"{at}/events", f"{at}/state", "/threads?includeArchived=true"]
    return [(await browser.ask("GET", path)).json() for path in reads]


async def fill(ada: Browser) -> None:
    """Let ada have a thread with two answers and a name."""
    await ada.run(thread=MINE, run="r")
    await ada.run(thread=MINE, run="asked", agent="asking")
    await ada.ask("PATCH", f"/threads/{quote(MINE)}", {"name": "Ada's"})


class Attempt(NamedTuple):
    """What came of all that somebody has tried."""

    leaks: dict[str, Any]
    """By which ways a thread of ada's looks other than one of nobody's: the two answers."""
    before: Any
    after: Any
    """What ada saw of her thread before and after."""
    answer: Sequence[Event]
    """What she was answered meanwhile."""


async def attempt(ada: Browser, eve: Browser, model: Parrot, ways: Sequence[Way]) -> Attempt:
    """Let eve try all ways to the thread of ada, while she is answered in it by the model."""
    gate, leaks = Gate(), dict[str, Any]()
    before = await shown(ada)
    model.gate = gate
    async with ada.running(thread=MINE, run="live") as answering:
        await answering.next()
        model.gate = None
        for way in ways:
            both = [without(await way.ask(eve, thread), thread) for thread in (MINE, NOBODYS)]
            # what she began for herself is no answer to what comes next
            for thread in (MINE, NOBODYS):
                await eve.ask("DELETE", f"/threads/{quote(thread)}")
            if both[0] != both[1] and way is not V1:
                leaks[way.name] = both
            assert b"Ada's" not in both[0][2].replace(b"Ada's own thread", b"")
        gate.release(10)
        answer = await answering.rest()
    return Attempt(leaks, before, await shown(ada), answer)
