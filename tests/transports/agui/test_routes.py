"""Which operation is asked for, by path and by envelope."""

from typing import Any

import pytest

from copilot_runtime.transports.agui.errors import Refusal
from copilot_runtime.transports.agui.routes import Operation, from_envelope, from_path
from tests.in_one_test import in_one_test


@in_one_test(
    ("method", "path", "operation"),
    [
        ("GET", "info", Operation(name="info")),
        ("HEAD", "info", Operation(name="info")),
        ("POST", "agent/a/run", Operation(name="run", agent="a")),
        ("POST", "agent/a%2Fb/stop/c%2Fd", Operation(name="stop", agent="a/b", thread="c/d")),
        ("POST", "agent/run/run", Operation(name="run", agent="run")),
        ("GET", "threads/messages/messages", Operation(name="read messages", thread="messages")),
        ("DELETE", "threads/clear", Operation(name="delete thread", thread="clear")),
        ("POST", "threads/clear", Operation(name="clear threads")),
        ("GET", "threads/100%2525/state", Operation(name="read state", thread="100%25")),
    ],
)
def test_a_path_says_what_is_asked(method: str, path: str, operation: Operation) -> None:
    assert from_path(method, path) == operation


def test_a_query_is_read_with_its_empty_values_and_its_unicode() -> None:
    found = from_path("GET", "threads", "agentId=%C3%A4+b&cursor=&limit=5")

    assert found.query == {"agentId": "ä b", "cursor": "", "limit": "5"}


@in_one_test(
    "path", ["", "infos", "agent", "agent//run", "agent/a", "threads//messages", "threads/a/b/c"]
)
def test_any_other_path_is_not_found(path: str) -> None:
    with pytest.raises(Refusal) as refused:
        from_path("GET", path)

    assert (refused.value.status, refused.value.body) == (404, {"error": "Not found"})


def test_a_resource_in_an_envelope_is_the_path_it_names() -> None:
    params = {"path": "/threads/a%2Fb?x=1", "httpMethod": "PATCH"}
    envelope = {"method": "resource/request", "params": params, "body": {"name": "n"}}

    assert from_envelope(envelope) == Operation(
        name="change thread", thread="a/b", query={"x": "1"}, body={"name": "n"}
    )


@in_one_test(
    "path",
    ["/agent/a/run", "agent/a/run", "/info", "info/", "/agent/a/stop/t", "transcribe", "/", "?x"],
)
def test_a_resource_is_never_a_run(path: str) -> None:
    params = {"path": path, "httpMethod": "POST"}

    with pytest.raises(Refusal, match="Unsupported resource"):
        from_envelope({"method": "resource/request", "params": params})


@in_one_test("params", [None, [], {}, {"agentId": ""}, {"agentId": 5}])
def test_a_run_in_an_envelope_names_its_agent(params: Any) -> None:
    with pytest.raises(Refusal, match="agentId"):
        from_envelope({"method": "agent/run", "params": params, "body": {}})
