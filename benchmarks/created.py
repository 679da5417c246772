"""Count what one short chat of a model creates in this process, and where.

    .venv/bin/python -m benchmarks.created

Counts do not depend on how busy the machine is, as times do. The model answers from a thread with
an event loop of its own, which is not counted; nor is what the HTTP server creates.
"""

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import MutableMapping
from concurrent.futures import Future
from types import FrameType
from typing import Any

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.openai import OpenAIAdapter

_CHATS = 96
_AT_ONCE = 16
_LOOP_METHODS = {
    "create_task": "tasks",
    "call_at": "timers",
    "call_soon": "callbacks",
    "create_future": "futures of Python code",
}
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def main() -> None:
    """Print the counts of one chat, and the places that make them."""
    counts = asyncio.run(_count(_serve_model()))
    totals: Counter[str] = Counter()
    for (kind, _), count in counts.items():
        totals[kind] += count
    for kind, total in totals.most_common():
        print(f"{total / _CHATS:6.1f}  {kind}")
        for (other, place), count in counts.most_common():
            if other == kind and count >= _CHATS // 2:
                print(f"{'':10}{count / _CHATS:6.1f}  {place}")


async def _count(port: int) -> Counter[tuple[str, str]]:
    adapter = OpenAIAdapter("m", base_url=f"http://127.0.0.1:{port}/v1", api_key="k")
    runtime = CopilotRuntime(adapter, settings=Settings(threads="memory"))
    app = runtime.lazy_app()
    counts: Counter[tuple[str, str]] = Counter()
    try:
        await _chat_many(app, 0)  # what is made once, is made now
        _watch(counts)
        await _chat_many(app, _CHATS)
        sys.setprofile(None)
    finally:
        await runtime.aclose()
    return counts


def _watch(counts: Counter[tuple[str, str]]) -> None:
    """Count from now on what is made in this thread."""
    loop: Any = asyncio.get_running_loop()
    for name, kind in _LOOP_METHODS.items():
        setattr(loop, name, _count_calls(getattr(loop, name), kind, counts))

    def count_generator(generator: Any) -> None:
        code = generator.ag_code
        counts["async generators", f"{code.co_filename.rpartition('/')[2]} {code.co_qualname}"] += 1

    def count_dataclass(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "__create_fn__.<locals>.__init__":
            counts["dataclasses", type(frame.f_locals["self"]).__name__] += 1

    sys.set_asyncgen_hooks(firstiter=count_generator)
    sys.setprofile(count_dataclass)


def _count_calls(make: Any, kind: str, counts: Counter[tuple[str, str]]) -> Any:
    def count(*args: Any, **options: Any) -> Any:
        counts[kind, _place(sys._getframe(1))] += 1  # pyright: ignore[reportPrivateUsage]
        return make(*args, **options)

    return count


def _place(frame: FrameType | None) -> str:
    """Return the function of ours that made something, or `asyncio`."""
    while frame is not None and "copilot_runtime" not in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None:
        return "asyncio"
    return f"{frame.f_code.co_filename.partition('copilot_runtime/')[2]} {frame.f_code.co_qualname}"


async def _chat_many(app: Any, first: int) -> None:
    for start in range(first, first + _CHATS, _AT_ONCE):
        await asyncio.gather(*(_chat(app, start + n) for n in range(_AT_ONCE)))


async def _chat(app: Any, number: int) -> None:
    body = {
        "threadId": f"t{number}",
        "runId": f"r{number}",
        "state": {},
        "tools": [],
        "messages": [{"id": "u", "role": "user", "content": "Hi"}],
        "context": [],
        "forwardedProps": {},
    }
    requests = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    done = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        if requests:
            return requests.pop()
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        assert message.get("status", 200) == 200, message
        if message["type"] == "http.response.body" and not message.get("more_body"):
            done.set()

    path = "/graphql/agent/default/run"
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [*headers, (b"accept", b"text/event-stream")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)


def _serve_model() -> int:
    """Start a model in a thread of its own, and return its port."""
    port: Future[int] = Future()

    async def serve() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        port.set_result(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    return port.result()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    deltas = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "word"}, None),
        ({}, "stop"),
    ]
    blocks = [
        b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": finish}]}).encode()
        for delta, finish in deltas
    ]
    events = b"".join(block + b"\n\n" for block in [*blocks, b"data: [DONE]"])
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(size))
            writer.write(_HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(events), events))
    except asyncio.IncompleteReadError:
        writer.close()


if __name__ == "__main__":
    main()
