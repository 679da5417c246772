"""Approvals over AG-UI: a yes is to what was asked, whatever a page sends with it."""

import json
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from copilot_runtime.adapters.scripted import call, say
from tests.extensions.analyst.http.server import serve

ASKED = {"name": "few", "sql": "SELECT * FROM orders LIMIT 1"}
CHANGED = {"name": "few", "sql": "SELECT 666 AS changed"}
QUESTION = {"id": "m1", "role": "user", "content": "Save one."}


def test_a_yes_is_to_what_was_asked_and_a_refused_one_leaves_the_question_open(
    tmp_path: Path,
) -> None:
    save = call("save_as_dataset", ASKED, id="save-1")
    with serve(tmp_path, save, say("Saved.")) as client:
        finished = _run(client, "r1", [QUESTION])[-1]
        asked = finished["outcome"]["interrupts"][0]["id"]
        changed = _run(client, "r2", [QUESTION, _write_call(CHANGED)], asked)[-1]
        empty = _run(client, "r3", [], asked)[-1]
        before = client.get("/graphql/analyst/datasets").json()["datasets"]
        done = _run(client, "r4", [QUESTION, _write_call(ASKED)], asked)
        after = client.get("/graphql/analyst/datasets").json()["datasets"]

    assert changed["message"].startswith("What was approved is not what the analyst asked")
    assert empty["message"].startswith("The analyst does not wait for this answer")
    assert len(before) == 1
    assert done[-1]["type"] == "RUN_FINISHED"
    saved = next(one for one in after if one["is_saved"])
    assert [column["name"] for column in saved["columns"]][:2] == ["owner", "city"]


def test_a_yes_at_another_server_counts_if_both_have_one_secret(tmp_path: Path) -> None:
    shared = {"store": f"sqlite:{tmp_path / 'threads.db'}", "secret": "a key of many letters"}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    save = call("save_as_dataset", ASKED, id="save-1")
    with serve(tmp_path / "one", save, **shared) as client:
        asked = _run(client, "r1", [QUESTION])[-1]["outcome"]["interrupts"][0]["id"]
    with serve(tmp_path / "two", say("Saved."), **shared) as client:
        done = _run(client, "r2", [QUESTION, _write_call(ASKED)], asked)
        twice = _run(client, "r3", [QUESTION, _write_call(ASKED)], asked)
        saved = [
            it["is_saved"] for it in client.get("/graphql/analyst/datasets").json()["datasets"]
        ]

    assert done[-1]["type"] == "RUN_FINISHED"
    assert twice[-1]["message"].startswith("The agent does not wait for this answer")
    assert saved.count(True) == 1


def _write_call(arguments: dict[str, str]) -> dict[str, Any]:
    function = {"name": "save_as_dataset", "arguments": json.dumps(arguments)}
    calls = [{"id": "save-1", "type": "function", "function": function}]
    return {"id": "a1", "role": "assistant", "content": "", "toolCalls": calls}


def _run(
    client: TestClient, id: str, messages: list[dict[str, Any]], answers: str | None = None
) -> list[Any]:
    """Return the events of a run; one with `answers` says yes to that interrupt."""
    payload = {"approved": True}
    resume = [{"interruptId": answers, "status": "resolved", "payload": payload}]
    body = {
        "threadId": "t",
        "runId": id,
        "state": {},
        "messages": messages,
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **({"resume": resume} if answers else {}),
    }
    text = client.post("/graphql/agent/analyst/run", json=body).text
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]
