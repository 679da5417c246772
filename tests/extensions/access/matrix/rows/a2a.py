"""Rows of A2A, as JSON-RPC and as HTTP+JSON."""

from collections.abc import Mapping
from typing import Any, Literal

from tests.extensions.access.matrix.rows.asks import Row, get, http, post
from tests.extensions.access.matrix.world import rpc, say_a2a

SAID = say_a2a("Hi", contextId="<context>")
MESSAGE = {"message": SAID}
PUSH = {"taskId": "<task>", "url": "http://127.0.0.1:9/", "id": "p"}


def a2a(method: str, shows: str = "", *, changes: bool = False, **params: Any) -> Row:
    """Return a request of JSON-RPC."""
    body = rpc(method, **params)
    return post("a2a/default", body, shows, a2a_version="1.0", changes=changes)


def rest(
    method: str, path: str, body: Any = None, shows: str = "", changes: Literal["", "changes"] = ""
) -> Row:
    version = "0.3" if path.startswith("/v1/") else "1.0"
    path = path.replace("{id}", "<task>").replace("{push_id}", "p")
    ask = http(method, f"a2a/default{path}", body, a2a_version=version)
    return Row(ask, shows, changes=bool(changes))


_PUSHES = "/tasks/{id}/pushNotificationConfigs"
_PUSHED = f"{_PUSHES}/{{push_id}}"
_TASKS: Mapping[tuple[str, str], Any] = {
    ("GET", "/tasks/{id}"): (None, "task"),
    ("GET", "/tasks/{id}:subscribe"): (),
    ("POST", "/tasks/{id}:subscribe"): ({},),
    ("POST", "/tasks/{id}:cancel"): ({}, "", "changes"),
    ("GET", _PUSHES): (),
    ("POST", _PUSHES): (PUSH,),
    ("GET", _PUSHED): (),
    ("POST", "/message:send"): (MESSAGE, "", "changes"),
    ("POST", "/message:stream"): (MESSAGE, "", "changes"),
}
"""What both versions have."""


A2A_ROWS: Mapping[str, Row] = {
    "GET a2a/.well-known/agent-card.json": get("a2a/.well-known/agent-card.json"),
    "GET a2a/.well-known/agent.json": get("a2a/.well-known/agent.json"),
    "GET a2a/{agent}/.well-known/agent-card.json": get("a2a/default/.well-known/agent-card.json"),
    "a2a SendMessage": a2a("SendMessage", changes=True, message=SAID),
    "a2a SendStreamingMessage": a2a("SendStreamingMessage", changes=True, message=SAID),
    "a2a GetTask": a2a("GetTask", "task", id="<task>"),
    "a2a ListTasks": a2a("ListTasks", contextId="<context>"),
    "a2a CancelTask": a2a("CancelTask", id="<task>", changes=True),
    "a2a SubscribeToTask": a2a("SubscribeToTask", id="<task>"),
    "a2a CreateTaskPushNotificationConfig": a2a(
        "CreateTaskPushNotificationConfig", taskId="<task>", url=PUSH["url"], id="p"
    ),
    "a2a GetTaskPushNotificationConfig": a2a(
        "GetTaskPushNotificationConfig", taskId="<task>", id="p"
    ),
    "a2a ListTaskPushNotificationConfigs": a2a("ListTaskPushNotificationConfigs", taskId="<task>"),
    "a2a DeleteTaskPushNotificationConfig": a2a(
        "DeleteTaskPushNotificationConfig", taskId="<task>", id="p"
    ),
    "a2a GetExtendedAgentCard": a2a("GetExtendedAgentCard"),
    "a2a GET /extendedAgentCard": rest("GET", "/extendedAgentCard"),
    "a2a GET /v1/card": rest("GET", "/v1/card"),
    "a2a GET /tasks": rest("GET", "/tasks?contextId=<context>"),
    **{
        f"a2a {method} {version}{path}": rest(method, version + path, *how)
        for version in ("", "/v1")
        for (method, path), how in _TASKS.items()
    },
    "a2a DELETE /tasks/{id}/pushNotificationConfigs/{push_id}": rest("DELETE", _PUSHED),
}
"""A2A, as JSON-RPC and as HTTP+JSON."""
