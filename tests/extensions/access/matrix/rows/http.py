"""Rows of the routes of HTTP, and of protocols of JSON over it."""

from collections.abc import Mapping
from typing import Any

from tests.extensions.access.matrix.callers import Asker, Reply
from tests.extensions.access.matrix.rows.asks import Row, envelope, get, http, post, root
from tests.extensions.access.matrix.world import BOTH, GREETING, Things, rpc
from tests.wire_agui.http import connect_input, run_input, user


async def join_list(asker: Asker, things: Things) -> Reply:
    """Ask for a token, and join the topic of the list of Ann's threads with it."""
    asked = await asker.ask("POST", "threads/subscribe", {})
    if asked.status != 200:
        return asked
    place = f"realtime/websocket?vsn=2.0.0&join_token={asked.json()['joinToken']}"
    message = ["1", "1", f"user_meta:{things.code}", "phx_join", {}]
    return await asker.join(place, message, b"phx_reply")


RUN = run_input(thread="<thread>", run="run-of-another", messages=[user("Hi")])
CONNECT = connect_input("<thread>")
ASK = {"message": "Show all."}
PLAN = "plans/<plan>"
TASK = f"{PLAN}/tasks/1"
ANSWER = {"question_id": "<question>", "answer": "approve"}
EVENT = {"detail_type": "NOTE", "resources": ["<conversation>"], "source": "shop"}


def mcp(method: str, shows: str = "", **params: Any) -> Row:
    """Return a request in the session of Ann."""
    body = rpc(method, **params) if method != "initialize" else GREETING
    session: dict[str, Any] = {} if method == "initialize" else {"mcp_session_id": "<session>"}
    return post("mcp", body, shows, accept=BOTH, **session)


PAGES = (
    *(
        "/",
        "/access",
        "/chat",
        "/data",
        "/knowledge",
        "/plans",
        "/sandbox",
        "/traces",
        "/widget.js",
    ),
    *("/docs", "/openapi.json"),
)
_HEALTH = [
    (method, path)
    for path in ("health", "health/live", "health/ready")
    for method in ("GET", "HEAD")
]

HTTP_ROWS: Mapping[str, Row] = {
    # pages and descriptions
    **{f"GET {page}": root(page) for page in PAGES},
    **{f"{method} /{path}": root(f"/{path}", method) for method, path in _HEALTH},
    **{f"{method} {path}": Row(http(method, path), kind="public") for method, path in _HEALTH},
    "GET /metrics": Row(http("GET", "/metrics", root=True), kind="token"),
    **{
        f"POST v1/{one}": post(f"v1/{one}", {}, kind="token")
        for one in ("logs", "metrics", "traces")
    },
    **{
        f"Route /v1/{one}": post(f"/v1/{one}", {}, kind="token", root=True)
        for one in ("logs", "metrics", "traces")
    },
    # threads and runs
    "GET info": get("info"),
    "POST info": post("info", {}),
    "GET inspector-metadata": get("inspector-metadata"),
    "GET threads": get("threads?includeArchived=true&limit=200", "name"),
    "GET threads/changes": get(
        "threads/changes?includeArchived=true&limit=200", "name", endless=True
    ),
    "WEBSOCKET realtime/websocket": Row(join_list),
    "ThreadSocketEndpoint realtime/websocket": Row(join_list),
    "GET threads/{thread}/events": get("threads/<thread>/events", "question"),
    "GET threads/{thread}/messages": get("threads/<thread>/messages", "question"),
    "GET threads/{thread}/state": get("threads/<asking_thread>/state", "state"),
    "PATCH threads/{thread}": Row(
        http("PATCH", "threads/<thread>", {"name": "Eve's"}), changes=True
    ),
    "DELETE threads/{thread}": Row(http("DELETE", "threads/<thread>"), changes=True),
    "POST threads/{thread}/archive": post(
        "threads/<thread>/archive", {"agentId": "default"}, changes=True
    ),
    "POST threads/clear": post("threads/clear", {}, changes=True),
    "POST threads/subscribe": post("threads/subscribe", {}),
    "POST annotate": post("annotate", {}),
    "POST transcribe": post("transcribe", {}),
    "ANY cpk-debug-events": get("cpk-debug-events"),
    "GET memories": get("memories", "fact"),
    "POST memories": post("memories", {"content": "Eve's"}),
    "POST memories/recall": post("memories/recall", {"query": "what Ann likes"}, "fact"),
    "PATCH memories/{memory}": Row(
        http("PATCH", "memories/<fact>", {"content": "Eve's"}), changes=True
    ),
    "DELETE memories/{memory}": Row(http("DELETE", "memories/<fact>"), changes=True),
    "POST memories/subscribe": post("memories/subscribe", {}),
    "POST a run": post("", RUN, changes=True),
    "POST agent/{agent}/run": post("agent/default/run", RUN, changes=True),
    "POST background/{agent}": post(
        "background/default", {**RUN, "webhook": "https://localhost/"}, changes=True
    ),
    "GET playground/{agent}": get("playground/default", kind="operator"),
    "POST agent/{agent}/ask": post("agent/default/ask", RUN),
    "POST agent/{agent}/suggest": post("agent/default/suggest", RUN),
    "POST agent/{agent}/connect": post("agent/default/connect", CONNECT, "question"),
    "POST agent/{agent}/stop/{thread}": post(
        "agent/waiting/stop/<live_thread>", {"runId": "<live_run>"}, changes=True
    ),
    "envelope info": envelope("info"),
    "envelope annotate": envelope("annotate", {}),
    "envelope transcribe": envelope("transcribe", {}),
    "envelope inspector/metadata": envelope("inspector/metadata"),
    "envelope agent/run": envelope("agent/run", RUN, agentId="default", changes=True),
    "envelope agent/suggest": envelope("agent/suggest", RUN, agentId="default"),
    "envelope agent/connect": envelope("agent/connect", CONNECT, "question", agentId="default"),
    "envelope agent/stop": envelope(
        "agent/stop", agentId="waiting", threadId="<live_thread>", changes=True
    ),
    "envelope resource/request": envelope(
        "resource/request", None, "question", path="threads/<thread>/messages", httpMethod="GET"
    ),
    # for programs
    "POST actions/execute": post(
        "actions/execute",
        {"name": "search_content", "arguments": {"input": "mat key file"}, "properties": {}},
    ),
    "POST agents/execute": post(
        "agents/execute",
        {
            "name": "asking",
            "threadId": "<asking_thread>",
            "messages": [],
            "actions": [],
            "state": {},
            "properties": {},
        },
    ),
    "POST agents/state": post(
        "agents/state", {"name": "asking", "threadId": "<asking_thread>", "properties": {}}
    ),
    "GET mcp": get("mcp", accept="text/event-stream", mcp_session_id="<session>", endless=True),
    "DELETE mcp": Row(http("DELETE", "mcp", accept=BOTH, mcp_session_id="<session>"), changes=True),
    "mcp initialize": mcp("initialize"),
    "mcp ping": mcp("ping"),
    "mcp server/discover": mcp("server/discover"),
    "mcp tools/list": mcp("tools/list"),
    "mcp tools/call": mcp("tools/call", name="ask_asking", arguments={"message": "Anything"}),
    # access, events, traces
    "GET access": get("access", kind="operator"),
    "GET access/whoami": get("access/whoami"),
    "POST access/keys": post("access/keys", {"name": "new"}, kind="operator", changes=True),
    "DELETE access/keys/{key}": Row(
        http("DELETE", "access/keys/cpk_0"), kind="operator", changes=True
    ),
    "DELETE access/users/{owner}/threads": Row(
        http("DELETE", "access/users/nobody/threads"), kind="operator", changes=True
    ),
    "GET events": get("events?limit=100", accept="application/json"),
    "POST events": post("events", EVENT, changes=True),
    "GET traces": get("traces?limit=200", kind="operator"),
    "GET traces/access": get("traces/access"),
    "GET traces/stats": get("traces/stats", kind="operator"),
    "GET traces/stream": get("traces/stream", kind="operator", endless=True),
    "GET traces/{trace}": get("traces/<trace>", kind="operator"),
    "DELETE traces/{trace}": Row(http("DELETE", "traces/<trace>"), kind="operator", changes=True),
    "POST traces/query": post("traces/query", {"query": "[?name]"}, kind="operator"),
    "POST traces/import": post("traces/import", {}, kind="operator", changes=True),
    "POST traces/feedback": post(
        "traces/feedback", {"trace_id": "<trace>", "rating": "down"}, changes=True
    ),
    # plans
    "GET plans": get("plans?limit=200", "plan"),
    "GET plans/{plan}": get(PLAN, "plan"),
    "GET plans/{plan}/events": get(f"{PLAN}/events", endless=True),
    "GET plans/{plan}/tasks/{task}": get(TASK),
    **{
        f"POST plans/{{plan}}/{one}": post(
            f"{PLAN}/{one}", ANSWER if one == "answer" else {}, changes=True
        )
        for one in ("answer", "retry", "stop")
    },
    **{
        f"POST plans/{{plan}}/tasks/{{task}}/{one}": post(
            f"{TASK}/{one}", ANSWER if one == "answer" else {}, changes=True
        )
        for one in ("answer", "retry", "stop")
    },
    # knowledge
    "GET knowledge": get("knowledge"),
    "GET knowledge/search": get("knowledge/search?q=mat+key+file&limit=50", "file"),
    "GET knowledge/ontology": get("knowledge/ontology"),
    "GET knowledge/ontology.svg": get("knowledge/ontology.svg"),
    "GET knowledge/resources": get(
        "knowledge/resources?limit=100",
        "",
    ),
    "GET knowledge/resources/{id}": get("knowledge/resources/<upload>"),
    "GET knowledge/files/{id}": get("knowledge/files/<upload>", "file"),
    "GET knowledge/context/{id}": get("knowledge/context/<conversation>"),
    "POST knowledge/context/{id}": post("knowledge/context/<conversation>", {}, changes=True),
    "POST knowledge/files": post(
        "knowledge/files?threadId=<thread>&name=mine.txt",
        b"What is mine.",
        content_type="text/plain",
        changes=True,
    ),
    # data
    "POST copilot/chat": post("copilot/chat", {**ASK, "session_id": "<thread>"}, "town"),
    "POST copilot/stream": post("copilot/stream", ASK, "town"),
    "POST copilot/stream/oai": post("copilot/stream/oai", ASK, "town", last_event_id="<stream>"),
    "Route /copilot/chat": post("/copilot/chat", ASK, "town", root=True),
    "Route /copilot/stream": post(
        "/copilot/stream", ASK, "town", root=True, last_event_id="<stream>"
    ),
    "Route /copilot/stream/oai": post("/copilot/stream/oai", ASK, "town", root=True),
    "GET analyst": get("analyst"),
    "GET analyst/datasets": get("analyst/datasets"),
    "GET analyst/datasets/{dataset}": get("analyst/datasets/<dataset>", "town"),
    "DELETE analyst/datasets/{dataset}": Row(
        http("DELETE", "analyst/datasets/<dataset>"), changes=True
    ),
    "GET analyst/charts/{chart}": get("analyst/charts/<chart>.json", "town"),
    "GET analyst/downloads/{download}": get("analyst/downloads/<download>", "town"),
    "GET analyst/memory": get("analyst/memory"),
    "DELETE analyst/memory": Row(http("DELETE", "analyst/memory?table=orders"), changes=True),
    "DELETE analyst/memory/{memory}": Row(http("DELETE", "analyst/memory/<memory>"), changes=True),
    "PATCH analyst/memory/{memory}": Row(
        http("PATCH", "analyst/memory/<memory>", {"note": "Eve's"}), changes=True
    ),
}
"""Requests of HTTP, and of protocols of JSON over it."""
