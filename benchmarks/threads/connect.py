"""The replay as a client gets it: our server on the full SQLite file, asked to connect."""

import http.client
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from benchmarks.streaming.commands import serve_ours
from benchmarks.streaming.load import Figures
from benchmarks.streaming.processes import Process, cpu_s, family, free_port, rss_mb
from benchmarks.streaming.servers import wait_for_port
from benchmarks.threads.stopwatch import Stopwatch

CONNECTS = {"connect-spoken": "spoken", "connect-calls": "called", "connect-longest": "longest"}
"""Cases and the threads that they read."""

_BASE = "/graphql"
# so many that ticks of 10 ms tell something
_TIMES = 20


def measure_connects(folder: Path) -> Iterator[tuple[str, Figures]]:
    """Serve the threads.db of a folder; connect to its long threads one after the other."""
    port = free_port()
    command = [word.replace("{PORT}", str(port)) for word in serve_ours(_BASE)]
    # nothing is asked of the model or of the agent
    env = {"MOCK_URL": "http://127.0.0.1:9", "TARGET_DIR": str(folder)}
    process = Process(command, env)
    try:
        process.start()
        wait_for_port(process, port)
        for case, thread in CONNECTS.items():
            yield case, _measure(process, port, thread)
    finally:
        process.stop()


def _measure(process: Process, port: int, thread: str) -> Figures:
    _connect(port, thread)
    watch, answer = Stopwatch(), b""
    before = cpu_s(family(process.pid))
    for _ in range(_TIMES):
        with watch.lap():
            answer = _connect(port, thread)
    time.sleep(0.05)
    pids = family(process.pid)
    return watch.figures() | {
        "cpu_ms": round((cpu_s(pids) - before) / _TIMES * 1000, 1),
        "events": answer.count(b"data: {"),
        "wire_kb": round(len(answer) / 1000, 1),
        "rss_mb": round(rss_mb(pids), 1),
    }


def _connect(port: int, thread: str) -> bytes:
    body = {
        "threadId": thread,
        "runId": str(uuid.uuid4()),
        "state": {},
        "messages": [],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", f"{_BASE}/agent/default/connect", json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    whole = answer.startswith(b'data: {"type":"RUN_STARTED"') and b"RUN_FINISHED" in answer[-500:]
    assert response.status == 200 and whole, f"{response.status}: {answer[-300:]!r}"
    return answer
