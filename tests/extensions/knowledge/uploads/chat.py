"""Questions with files, as CopilotKit's chat sends them."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from copilot_runtime.base.jsonpatch import apply_patch

CSV = b"fruit,price\napple,3 crowns\nquince,41 crowns\npear,5 crowns\nplum,2 crowns\n"
EXE = b"MZ\x90\x00\x03\x00\x00\x00" + bytes(200)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def attach(data: bytes | str, name: str = "file.pdf", kind: str = "document") -> dict[str, Any]:
    """Return a part with a file; a text is taken for its base64."""
    value = data if isinstance(data, str) else base64.b64encode(data).decode()
    source = {"type": "data", "value": value, "mimeType": "application/pdf"}
    return {"type": kind, "source": source, "metadata": {"filename": name}}


def question(text: str, *files: Mapping[str, Any], id: str = "q1") -> dict[str, Any]:
    """Return a message of the user."""
    parts = [*([{"type": "text", "text": text}] if text else []), *files]
    return {"id": id, "role": "user", "content": parts}


def ask(
    client: TestClient,
    *messages: Mapping[str, Any],
    user: str = "ann",
    thread: str = "t1",
    run: str = "r1",
    agent: str = "default",
    **more: Any,
) -> list[dict[str, Any]]:
    """Send a conversation as an AG-UI client, and return the events of the answer."""
    body = {
        "threadId": thread,
        "runId": run,
        "state": {},
        "messages": [*messages],
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **more,
    }
    answer = client.post(
        f"/graphql/agent/{agent}/run",
        json=body,
        headers={"accept": "text/event-stream", **({"x-user": user} if user else {})},
    )
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line[:6] == "data: "]


def progress(events: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the files as the page was shown them, one after the other."""
    shown: list[Any] = []
    for event in events:
        if event.get("activityType") == "files":
            patch = event.get("patch")
            content = apply_patch(shown[-1], patch) if patch else event["content"]
            shown.append(content)
    return [content["files"] for content in shown]


def sources(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sources of an answer."""
    found = [it["content"]["sources"] for it in events if it.get("activityType") == "sources"]
    return found[-1] if found else []


def find_files(folder: Path, text: bytes) -> list[str]:
    """Return the files of uploads below a folder: by their name, or by a text that is in them."""
    found: list[str] = []
    for place, _, names in os.walk(folder):  # passes over what is deleted meanwhile
        for name in names:
            path = Path(place, name)
            with suppress(FileNotFoundError):
                if "file.Upload" in str(path) or text in path.read_bytes():
                    found.append(str(path.relative_to(folder)))
    return sorted(found)
