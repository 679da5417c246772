"""A server behind pipes, by hand and quick to start, which can also behave badly.

    python -m tests.extensions.mcp.client.bare [junk | silent | stubborn]

A stubborn one is silent, writes its process id into the file COUNT, and goes only if it is killed.

Its tools count their calls in the file COUNT, and end the process at the first if DIES is set. The
file TOOLS has the pages of tools that it offers, and RESULT what they return, both as JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, str(Path(__file__))]

EMPTY: dict[str, Any] = {"type": "object"}
TOOLS: list[dict[str, Any]] = [
    {"name": "work", "inputSchema": EMPTY},
    {"name": "look", "inputSchema": EMPTY, "annotations": {"readOnlyHint": True}},
]


def main(mode: str) -> None:
    if mode == "junk":
        print("Welcome!\n{]\n[1, 2]\nnull", flush=True)  # noqa: T201
    if mode == "stubborn":
        Path(os.environ["COUNT"]).write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or mode == "silent":
            continue
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result(asked)}
        print(json.dumps(answer), flush=True)  # noqa: T201


def result(asked: dict[str, Any]) -> dict[str, Any]:
    match asked["method"]:
        case "initialize":
            return {
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bare", "version": "1"},
            }
        case "tools/list":
            return page(int((asked.get("params") or {}).get("cursor") or 0))
        case _ if "RESULT" in os.environ:
            return json.loads(Path(os.environ["RESULT"]).read_text())
        case _:
            return {"content": [{"type": "text", "text": f"{os.getpid()} {count()}"}]}


def page(number: int) -> dict[str, Any]:
    file = os.environ.get("TOOLS")
    pages = json.loads(Path(file).read_text()) if file else [TOOLS]
    more = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
    return {"tools": pages[number], **more}


def count() -> int:
    """Return how often a tool was called, in all processes together."""
    file = Path(os.environ["COUNT"])
    with file.open("a") as calls:
        calls.write("+")
    number = len(file.read_text())
    if number == 1 and "DIES" in os.environ:
        os._exit(3)
    return number


if __name__ == "__main__":
    main((sys.argv[1:] or [""])[0])
