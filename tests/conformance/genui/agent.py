"""An agent that speaks AG-UI and plays what the last question names: `scenario:render`.

`python -m tests.conformance.genui.agent` serves it on a free port and prints the address.
"""

import argparse
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from tests.conformance.genui.scripts import MORE
from tests.conformance.genui.scripts.events import call

Event = dict[str, Any]
Script = Callable[[int], Iterator[Event]]
"""Yields the events between the first and the last; it gets the number of messages."""

_SURFACE = {
    "surfaceId": "s1",
    "components": [
        {"id": "root", "component": "Column", "children": ["t"]},
        {"id": "t", "component": "Text", "text": "Hello"},
    ],
}
_LIST = {
    "surfaceId": "list",
    "components": [
        {
            "id": "root",
            "component": "Column",
            "children": {"componentId": "card", "path": "/flights"},
        },
        {"id": "card", "component": "Text", "text": {"path": "name"}},
    ],
    "data": {"flights": [{"name": "A1"}, {"name": "B2"}, {"name": "C3"}]},
}
_FORM = {
    "surfaceId": "form",
    "components": [
        {"id": "root", "component": "Column", "children": ["f", "b"]},
        {"id": "f", "component": "TextField", "label": "Name", "text": {"path": "/form/name"}},
        {
            "id": "b",
            "component": "Button",
            "child": "bt",
            "action": {"event": {"name": "submit", "context": {"name": {"path": "/form/name"}}}},
        },
        {"id": "bt", "component": "Text", "text": "Send"},
    ],
    "data": {"form": {"name": "Alice"}},
}
_LONG = {"surfaceId": "long", "note": "x" * 600, "components": _SURFACE["components"]}
_DANGLING = {
    "surfaceId": "s1",
    "components": [{"id": "root", "component": "Column", "children": ["nope"]}],
}
_NO_ROOT = {"surfaceId": "s1", "components": [{"id": "a", "component": "Text", "text": "x"}]}
_BAD_BINDING = {
    "surfaceId": "s1",
    "components": [{"id": "root", "component": "Text", "text": {"path": "/missing/x"}}],
    "data": {"a": 1},
}
_OWN_CATALOG = {
    "surfaceId": "s1",
    "catalogId": "https://model.example/cat",
    "components": _SURFACE["components"],
}
_PAGE = {
    "initialHeight": 320,
    "placeholderMessages": ["Thinking", "Drawing"],
    "css": "p{color:red}",
    "html": '<head></head><body><p id="x">Hi \u4e16\u754c</p>\n</body>',
    "jsFunctions": "function f(){return 1}",
    "jsExpressions": ["f()", "document.title='a'"],
}
_SHORT_PAGE = {name: _PAGE[name] for name in ("initialHeight", "css", "html")}
_BAD_PAGE = '{"initialHeight": 200, "css": oops, "html": "<p>x</p>"}'
_CUT_PAGE = '{"initialHeight":200,"css":"a","html":"<p>never clo'
_BROKEN = '{"surfaceId":"s1","components":[{"id":"root"'


def _write(value: Any) -> str:
    """Return JSON as the recorded agent writes it."""
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    )


def _draw(surface: str) -> Sequence[Mapping[str, Any]]:
    """Return the operations that make a surface with one text."""
    text = {"id": "root", "component": "Text", "text": "Hi"}
    return [
        {"version": "v0.9", "createSurface": {"surfaceId": surface, "catalogId": "acme"}},
        {"version": "v0.9", "updateComponents": {"surfaceId": surface, "components": [text]}},
    ]


def _say(text: str, key: str) -> Iterator[Event]:
    yield {"type": "TEXT_MESSAGE_START", "messageId": key, "role": "assistant"}
    yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": key, "delta": text}
    yield {"type": "TEXT_MESSAGE_END", "messageId": key}


def _begin(key: str, tool: str, arguments: Any, size: int, parent: str = "") -> Iterator[Event]:
    """Begin a call, and write its arguments in pieces of that many characters."""
    message = {"parentMessageId": parent} if parent else {}
    yield {"type": "TOOL_CALL_START", "toolCallId": key, "toolCallName": tool, **message}
    text = _write(arguments)
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": key, "delta": piece}


def _end(key: str) -> Event:
    return {"type": "TOOL_CALL_END", "toolCallId": key}


def _answer(key: str, value: Any) -> Event:
    result = {"type": "TOOL_CALL_RESULT", "messageId": f"tr-{key}", "toolCallId": key}
    return {**result, "content": _write(value), "role": "tool"}


def _render(
    arguments: Any,
    size: int = 1000,
    text: str = "",
    parent: str = "",
    *,
    key: str = "r1",
    tool: str = "render_a2ui",
) -> Script:
    """Return a script that draws, and then says something."""

    def play(count: int) -> Iterator[Event]:
        yield from _begin(key, tool, arguments, size, parent)
        yield _end(key)
        if text:
            yield from _say(text, f"m-{count}")

    return play


def _sandbox(page: Any, size: int = 1_000_000) -> Script:
    """Return a script that writes a page for a sandbox."""
    return _render(page, size, key="g1", tool="generateSandboxedUi")


def _return(value: Any, tool: str = "dash", arguments: Any = "{}", text: str = "") -> Script:
    """Return a script with a tool of the agent that has this result."""

    def play(count: int) -> Iterator[Event]:
        yield from _begin("t1", tool, arguments, 48)
        yield _end("t1")
        yield _answer("t1", value)
        if text:
            yield from _say(text, f"m-{count}")

    return play


def _play_own_result(count: int) -> Iterator[Event]:
    yield from _render(_SURFACE)(count)
    yield _answer("r1", {"a2ui_operations": _draw("s1")})


def _play_outer(count: int) -> Iterator[Event]:
    yield from _begin("o1", "generate_a2ui", "{}", 2)
    yield from _begin("i1", "render_a2ui", _SURFACE, 60)
    yield _end("i1")
    yield _end("o1")
    yield _answer("o1", {"a2ui_operations": _draw("s1")})
    yield from _say("made it", f"m-{count}")


def _play_retry(count: int) -> Iterator[Event]:
    yield from _begin("o1", "generate_a2ui", "{}", 2)
    for key, surface in (("i1", _DANGLING), ("i2", _SURFACE)):
        yield from _begin(key, "render_a2ui", surface, 1000)
        yield _end(key)
    yield _end("o1")
    yield _answer("o1", {"a2ui_operations": _draw("s1")})


def _play_error(count: int) -> Iterator[Event]:
    yield from _begin("r1", "render_a2ui", _write(_SURFACE)[:60], 30)
    yield {"type": "RUN_ERROR", "message": "model died"}


def _play_page_of_message(count: int) -> Iterator[Event]:
    yield from _say("I will draw", "m-p")
    yield from _begin("g1", "generateSandboxedUi", _SHORT_PAGE, 1_000_000, "m-p")
    yield _end("g1")


def _play_page_result(count: int) -> Iterator[Event]:
    yield from _sandbox(_SHORT_PAGE)(count)
    yield _answer("g1", "drawn by agent")
    yield from _say("ok", f"m-{count}")


def _play_page_error(count: int) -> Iterator[Event]:
    yield from _begin("g1", "generateSandboxedUi", _write(_PAGE)[:120], 40)
    yield {"type": "RUN_ERROR", "message": "model died"}


def _play_own_activity(count: int) -> Iterator[Event]:
    content = {"a2ui_operations": _draw("own")}
    activity = {"type": "ACTIVITY_SNAPSHOT", "messageId": "own-1", "activityType": "a2ui-surface"}
    yield {**activity, "content": content, "replace": True}
    yield from _say("own", f"m-{count}")


def _call(*calls: tuple[str, Any], text: str = "") -> Script:
    """Return a script that calls tools, none of which the agent runs itself."""

    def play(count: int) -> Iterator[Event]:
        for number, (tool, arguments) in enumerate(calls, 1):
            yield from call(f"c{number}", tool, arguments, 48)
        if text:
            yield from _say(text, f"m-{count}")

    return play


def _play_call(count: int) -> Iterator[Event]:
    yield from _say("Let me look", "m-p")
    yield from _begin("c1", "show_weather", {"city": "Oslo"}, 9, "m-p")
    yield _end("c1")


def _play_own_app(count: int) -> Iterator[Event]:
    yield from call("c1", "show_weather", {"city": "Rome"})
    yield _answer("c1", "agent did it")


def _play_app_error(count: int) -> Iterator[Event]:
    yield from call("c1", "show_weather", {"city": "Oslo"})
    yield {"type": "RUN_ERROR", "message": "model died"}


_COUNT = {"updateDataModel": {"surfaceId": "flights", "path": "/", "value": {"n": 1}}}
_FLIGHTS = {"a2ui_operations": [*_draw("flights"), {"version": "v0.9", **_COUNT}]}

SCRIPTS: Mapping[str, Script] = {
    "text": lambda count: _say("Hello", f"m-{count}"),
    "render": _render(_SURFACE, 48, "done"),
    "render-list": _render(_LIST, 20),
    "render-form": _render(_FORM, 64),
    "render-long": _render(_LONG, 100),
    "render-onechunk": _render(_LIST, 1_000_000),
    "render-catalog-arg": _render(_OWN_CATALOG),
    "render-text-after": _render(_SURFACE, text="after", parent="m-a"),
    "render-dangling": _render(_DANGLING, text="sorry"),
    "render-noroot": _render(_NO_ROOT),
    "render-badbinding": _render(_BAD_BINDING),
    "render-badjson": _render(_BROKEN, text="oops"),
    "render-error": _play_error,
    "render-own-result": _play_own_result,
    "outer": _play_outer,
    "outer-retry": _play_retry,
    "own-activity": _play_own_activity,
    "result": _return(_FLIGHTS, "search_flights", {"q": "OSL"}, "here"),
    "result-two": _return({"a2ui_operations": [*_draw("a"), *_draw("b")]}),
    "result-array": _return(_draw("arr")),
    "result-extra": _return({"a2ui_operations": _draw("x"), "summary": "ok"}),
    "result-nosurface": _return({"a2ui_operations": [{"version": "v0.9", "foo": {}}]}),
    "ui": _sandbox(_PAGE, 24),
    "ui-onechunk": _sandbox(_PAGE),
    "ui-char": _sandbox(_SHORT_PAGE, 3),
    "ui-badjson": _sandbox(_BAD_PAGE, 12),
    "ui-truncated": _sandbox(_CUT_PAGE, 14),
    "ui-own-result": _play_page_result,
    "ui-parent": _play_page_of_message,
    "ui-error": _play_page_error,
    "result-empty": _return({"a2ui_operations": []}),
    "act-tool": lambda count: _say("Hello", f"m-{count}"),
    "mcp-call": _play_call,
    "mcp-two": _call(("show_weather", {"city": "Oslo"}), ("show_legacy", {})),
    "mcp-soft": _call(("soft_error", {})),
    "mcp-hard": _call(("hard_error", {})),
    "mcp-notext": _call(("no_text", {})),
    "mcp-badjson": _call(("show_weather", "{not json")),
    "mcp-nonui": _call(("delete_everything", {})),
    "mcp-apponly": _call(("app_only", {})),
    "mcp-text-after": _call(("show_weather", {"city": "Oslo"}), text="text after the call"),
    "mcp-own-result": _play_own_app,
    "mcp-error": _play_app_error,
}


def find_answers(messages: Sequence[Event]) -> Sequence[Event]:
    """Return the results of tools since the last question."""
    roles = [message["role"] for message in messages]
    start = len(roles) - roles[::-1].index("user") if "user" in roles else 0
    return [message for message in messages[start:] if message["role"] == "tool"]


def play(run: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events of a run."""
    place = {"threadId": run["threadId"], "runId": run["runId"]}
    messages = run["messages"]
    answers = find_answers(messages)
    questions = [one["content"] for one in messages if one["role"] == "user"]
    found = re.search(r"scenario:([\w-]+)", questions[-1]) if questions else None
    name = found[1] if found else "text"
    count = len(messages)
    yield {"type": "RUN_STARTED", **place}
    event: Event = {}
    if (run.get("forwardedProps") or {}).get("a2uiAction"):
        is_answered = any(one.get("toolCallId") == "w1" for one in messages)
        if name == "act-tool" and not is_answered:
            yield from call("w1", "getWeather", {"city": "Oslo"})
        else:
            yield from _say("got action", f"m-{count}")
    elif answers:
        yield from _say(f"Tool returned: {answers[-1]['content']}", f"m-{count}")
    else:
        for event in MORE[name] if name in MORE else SCRIPTS[name](count):
            yield {**event, **place} if event["type"] == "RUN_FINISHED" else event
    if event.get("type") not in ("RUN_ERROR", "RUN_FINISHED"):
        yield {"type": "RUN_FINISHED", **place}


LOG: list[Mapping[str, Any]] = []
"""The runs that were asked for."""


async def serve_run(request: Request) -> StreamingResponse:
    run = await request.json()
    LOG.append(run)

    async def stream() -> AsyncGenerator[str, None]:
        for event in play(run):
            yield f"data: {json.dumps(event)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


async def serve_log(request: Request) -> JSONResponse:
    """Return the runs since the last time that this was asked for with DELETE."""
    runs = [*LOG]
    if request.method == "DELETE":
        LOG.clear()
    return JSONResponse(runs)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port
    log = Route("/__log", serve_log, methods=["GET", "DELETE"])
    app = Starlette(routes=[Route("/", serve_run, methods=["POST"]), log])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    with config.bind_socket() as sock:
        sock.listen()
        print(f"agent on http://localhost:{sock.getsockname()[1]}", flush=True)  # noqa: T201
        uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
