"""A server with everything, the people who ask it, and all that Ann has there."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.requests import HTTPConnection

from copilot_runtime import ActionContext, ChatRequest, CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import AgentState, Interrupt
from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import AuthenticationFailed
from copilot_runtime.extensions.access.api_keys.sqlite import SqliteKeys
from copilot_runtime.extensions.grpc.server import GrpcServer
from tests.extensions.access.credentials import KEY, issue_key, settings_of
from tests.extensions.access.credentials import SECRET as SECRET_OF_SERVICES
from tests.extensions.access.matrix.callers import BASE, Asker, open_channel
from tests.extensions.generative_ui.apps import serve_weather
from tests.extensions.planner.crew import Crew, build_engine, build_plan
from tests.extensions.planner.http.server import wrap_engine
from tests.wire.client import chat
from tests.wire_agui.http import run_input, user
from tests.wire_agui.server import heard

SECRET = "annsecret"
"""Begins every word that only Ann may read."""
OWNER = "tenant:north/ann"
SESSIONS = {f"{name}-session": (name, "north") for name in ("ann", "ben", "bob", "bea")}
PROXY = "10.0.0.1"
"""The only address whose headers say who somebody is."""
TOOLS = """
whoami:
  description: Say who calls.
  endpoint: {function: "tests.extensions.access.matrix.world:whoami"}
"""
SERVICES = (
    *("agent", "context", "event", "graph", "llm"),
    *("memory", "plan", "tool", "trace", "vector"),
)
ROWS = "owner,city,amount\n" + "".join(
    f"tenant:{tenant}/{name},{town},{amount}\n"
    for tenant, name, town, amount in (
        ("north", "ann", f"{SECRET}town", 551155),
        ("north", "ben", "Rome", 30),
        ("north", "bob", "Rome", 30),
        ("north", "bea", "Rome", 30),
        ("south", "ann", "Rome", 30),
    )
)


@dataclass(frozen=True)
class Things:
    """Ids of what Ann has."""

    thread: str = "ann-thread-0001"
    live_thread: str = "ann-thread-live"
    asking_thread: str = "ann-thread-asks"
    run: str = "ann-run-1"
    live_run: str = "ann-run-live"
    v1_run: str = "ann-run-v1xx"
    plan: str = ""
    question: str = ""
    upload: str = ""
    conversation: str = ""
    chart: str = ""
    download: str = ""
    dataset: str = ""
    memory: str = ""
    fact: str = ""
    trace: str = ""
    session: str = ""
    task: str = ""
    context: str = ""
    stream: str = ""
    code: str = ""

    def make_up(self) -> "Things":
        """Return ids of the same form that nobody has."""
        return Things(**{one.name: _change(getattr(self, one.name)) for one in fields(self)})


def _change(text: str) -> str:
    """Return a text whose last four letters and digits are others of their kind."""
    letters, left = [*text], 4
    for at in range(len(letters) - 1, -1, -1):
        if left and letters[at].isalnum():
            last = letters[at] in "9fzZF"
            letters[at] = {"9": "0", "f": "a", "F": "A"}.get(
                letters[at], "a" if last else chr(ord(letters[at]) + 1)
            )
            left -= 1
    return "".join(letters)


class Model:
    """Repeats what it hears; with the tools of data, it shows all that there is."""

    async def stream(self, request: ChatRequest) -> Events:
        names = {action.name for action in request.actions}
        is_new = type(request.messages[-1]).__name__ == "TextMessage"
        if "run_sql" not in names or not is_new:
            for event in say(heard(request), id=f"m{time.monotonic_ns()}"):
                yield event
            return
        sql = "SELECT * FROM orders"
        for name, given in (
            ("run_sql", {"sql": sql}),
            (
                "plot_data",
                {
                    "chart_type": "bar",
                    "sql": sql,
                    "x_column": "city",
                    "y_column": "amount",
                    "title": "Rows",
                },
            ),
            ("save_as_dataset", {"name": "anns_orders", "sql": sql, "description": ""}),
            ("download_data", {"sql": sql, "format": "csv", "filename": "all"}),
        ):
            for event in call(name, given, id=f"{name}-{time.monotonic_ns()}"):
                yield event


class Waiting:
    """An agent that says something, and goes on when it is let go."""

    description = ""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def run(self, run: RunInput) -> Events:
        for event in say(f"{SECRET}live", id=f"w-{run.run_id}"):
            yield event
        await self.released.wait()


class Asking:
    """An agent that has a state, and asks a person."""

    description = ""

    async def run(self, run: RunInput) -> Events:
        for event in say(heard_of(run), id=f"a-{run.run_id}"):
            yield event
        yield AgentState(agent="asking", state={"said": heard_of(run)})
        if not run.resume:
            yield Interrupt(interrupt_id="i1", reason="approval", message="Really?")


def whoami(context: ActionContext) -> str:
    """Say who calls."""
    return f"You are {context.user}."


def heard_of(run: RunInput) -> str:
    texts = [getattr(message, "content", "") for message in run.messages]
    return f"You said {texts[-1] if texts else 'nothing'}"


def sign_in(connection: HTTPConnection) -> Identity:
    """Return who has a session of the application."""
    found = SESSIONS.get(connection.headers.get("x-session", ""))
    if found is None:
        raise AuthenticationFailed("Sign in to use this server.")
    return Identity(user=found[0], tenant=found[1])


def read_settings(path: Path) -> Settings:
    (path / "orders.csv").write_text(ROWS)
    (path / "tools.yml").write_text(TOOLS)
    analyst = {
        "name": "analyst",
        "data": [str(path / "orders.csv")],
        "store": str(path / "store"),
        "folder": str(path / "config"),
        "row_filters": {"orders": "owner = $user"},
        "threads": 1,
        "approve_saves": False,
    }
    settings = settings_of(
        path,
        serve_remote=True,
        serve_mcp=True,
        serve_a2a=True,
        telemetry={
            "store": "memory",
            "receive": "token",
            "receive_token": "the token of exporters",
            "metrics_endpoint": True,
            "metrics_token": "the token of Prometheus",
        },
        events={"store": "memory"},
        webhooks={"secret": f"whsec_{'A' * 32}"},
        knowledge={"storage": "memory"},
        analyst=analyst,
        audit={"file": str(path / "audit.jsonl"), "reads": True},
        limits={"requests_per_user": "100000/hour"},
        service_tokens={"secrets": [SECRET_OF_SERVICES]},
        proxy={
            "sign_in_addresses": [PROXY],
            "tenant_header": "x-tenant",
            "roles_header": "x-roles",
        },
        tools=str(path / "tools.yml"),
        grpc={"services": SERVICES, "address": "127.0.0.1:0", "reflection": True},
    )
    jwt = settings.jwt.model_copy(update={"tenant_claim": "org"})
    return settings.model_copy(update={"jwt": jwt})


@dataclass
class World:
    """The server and its people."""

    path: Path
    runtime: CopilotRuntime
    app: Any
    engine: Any
    keys: SqliteKeys
    nobody: Asker
    waiting: Waiting
    things: Things = Things()

    def token(self, name: str, tenant: str, *roles: str) -> Asker:
        """Return somebody whom an identity provider has signed in."""
        token = KEY.sign(exp=time.time() + 3600, sub=name, org=tenant, roles=[*roles])
        return self.nobody.with_headers(("authorization", f"Bearer {token}"))

    async def key(self, name: str, tenant: str, **given: Any) -> Asker:
        """Return a program with a key of somebody."""
        text = await issue_key(self.keys, name, tenant, **given)
        return self.nobody.with_headers(("authorization", f"Bearer {text}"))

    @property
    def ann(self) -> Asker:
        return self.token("ann", "north")

    @property
    def operator(self) -> Asker:
        return self.token("opa", "north", "operator")


@asynccontextmanager
async def build_world(path: Path) -> AsyncGenerator[World, None]:
    """Serve a runtime with everything, in which nobody has anything yet."""
    engine = build_engine(Crew())
    async with serve_weather() as weather:
        waiting = Waiting()
        runtime = CopilotRuntime(
            Model(),
            settings=read_settings(path),
            authenticate=sign_in,
            agents={"planner": wrap_engine(engine), "waiting": waiting, "asking": Asking()},
            mcp_apps=weather.apps(),
        )
        app: Any = runtime.app(path=BASE)
        async with app.router.lifespan_context(app):
            channel = open_channel(runtime.get(GrpcServer).port)
            keys = SqliteKeys(path / "access.db")
            nobody = Asker(app, channel)
            try:
                yield World(path, runtime, app, engine, keys, nobody, waiting)
            finally:
                waiting.released.set()
                await channel.close()
                await keys.aclose()


async def settle(world: World) -> Things:
    """Have Ann make something of every kind, and return the ids of it."""
    ann, things = world.ann, Things()
    await _talk(ann, things)
    found = replace(things, **await _upload(ann, things), **await _ask_analyst(ann))
    plan = await _plan(world.engine, things)
    found = replace(found, **plan, **await _call_programs(ann), **await _start_live(ann, things))
    listed = await world.operator.ask("GET", f"traces?thread_id={things.thread}")
    found = replace(
        found, code=await _make_code(world.runtime), trace=listed.json()["traces"][0]["trace_id"]
    )
    world.things = found
    return found


async def _make_code(runtime: CopilotRuntime) -> str:
    """Return the code of the list of Ann's threads, which her page reads in the list."""
    sockets = [it for it in runtime.transports if type(it).__name__ == "ThreadSocketEndpoint"]
    push: Any = vars(sockets[0])["_push"]
    return await push.tokens.make_code(OWNER)


async def _talk(ann: Asker, things: Things) -> None:
    body = run_input(thread=things.thread, run=things.run, messages=[user(f"{SECRET}question")])
    await ann.ask("POST", "agent/default/run", body)
    name = {"name": f"{SECRET}name", "agentId": "default"}
    await ann.ask("PATCH", f"threads/{things.thread}", name)
    ask = run_input(thread=things.asking_thread, messages=[user(f"{SECRET}state")])
    await ann.ask("POST", "agent/asking/run", ask)


async def _upload(ann: Asker, things: Things) -> Mapping[str, str]:
    place = f"knowledge/files?threadId={things.thread}&name={SECRET}.txt"
    text = f"{SECRET}file is about the mat under which the key is.".encode()
    answer = await ann.ask("POST", place, text, content_type="text/plain")
    address: str = answer.json()["value"]
    upload = unquote(address.rpartition("/")[2])
    fact = await ann.ask("POST", "memories", {"content": f"{SECRET}fact is what Ann likes"})
    return {
        "upload": upload,
        "conversation": upload.rpartition("/")[0],
        "fact": fact.json()["id"],
    }


async def _ask_analyst(ann: Asker) -> Mapping[str, str]:
    answer = (await ann.ask("POST", "copilot/chat", {"message": "Show all."})).json()
    memories: Sequence[Any] = ()
    while not memories:  # it is written after the answer, by a task that has to have its turn
        await asyncio.sleep(0)
        memories = (await ann.ask("GET", "analyst/memory")).json()["memories"]
    datasets = (await ann.ask("GET", "analyst/datasets")).json()["datasets"]
    stream = {"message": "Show all.", "resumable": True}
    text = (await ann.ask("POST", "copilot/stream", stream)).body.decode()
    last = next(line for line in text.split("\n") if line.startswith("id:"))
    return {
        "download": answer["download"]["url"].rpartition("/")[2],
        "chart": answer["chart"]["id"],
        "dataset": next(one["name"] for one in datasets if one["is_saved"]),
        "memory": memories[0]["id"],
        "stream": last[3:].strip(),
    }


async def _plan(engine: Any, things: Things) -> Mapping[str, str]:
    plan = replace(
        build_plan("fares", thread_id=things.thread, user=OWNER, needs_approval=True),
        request=f"{SECRET}plan",
    )
    plan_id = await engine.submit(plan)
    async for _ in engine.follow(plan_id):
        if (await engine.get(plan_id)).questions:
            break
    return {"plan": plan_id, "question": next(iter((await engine.get(plan_id)).questions))}


def rpc(method: str, **params: Any) -> Mapping[str, Any]:
    """Return a request of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


GREETING = rpc(
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "matrix", "version": "1"},
)
BOTH = "application/json, text/event-stream"


def say_a2a(text: str, **more: str) -> Mapping[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}], **more}


async def _call_programs(ann: Asker) -> Mapping[str, str]:
    """Begin a session of MCP and a task of A2A."""
    greeted = await ann.ask("POST", "mcp", GREETING, accept=BOTH)
    message = say_a2a(f"{SECRET}task")
    sent = await ann.ask(
        "POST", "a2a/default", rpc("SendMessage", message=message), a2a_version="1.0"
    )
    task = sent.json()["result"]["task"]
    return {
        "session": greeted.headers["mcp-session-id"],
        "task": task["id"],
        "context": task["contextId"],
    }


START = """subscription($data: GenerateCopilotResponseInput!) {
    generateCopilotResponse(data: $data) { runId deltas { content } } }"""


async def _start_live(ann: Asker, things: Things) -> Mapping[str, str]:
    """Begin runs that go on, by both protocols."""
    body = run_input(thread=things.live_thread, run=things.live_run)
    await ann.ask("POST", "agent/waiting/run", body, is_endless=True)
    data = chat(agentSession={"agentName": "waiting"})["variables"]["data"]
    data = {**data, "threadId": f"{things.live_thread}-v1"}
    answer = await ann.subscribe(START, {"data": data}, SECRET.encode())
    first = json.loads(answer.body.split(b"\n")[2 if b"ack" in answer.body else 1] or b"{}")
    return {"v1_run": first["payload"]["data"]["generateCopilotResponse"]["runId"]}
