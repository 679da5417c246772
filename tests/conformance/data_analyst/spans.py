"""What is traced of a question: which spans there are, and what they say."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.sql.parsing import fingerprint_sql
from copilot_runtime.extensions.tracing.otel.mirror import SdkMirror
from copilot_runtime.extensions.tracing.store import TraceFilter
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.testing import call, say
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts, Prose, Unknown
from tests.conformance.data_analyst.streams import BLOCKED, QUESTION, RUNS
from tests.conformance.data_analyst.world import PATHS, Server, World, serve

AGENT = "axis-copilot"
"""The name of the agent in cases."""
MARK = "zebra4711"
"""What a person writes, and no span may repeat."""

_ROOT = "copilot.request"
_ATTEMPT = "axis.sql.attempt"
_WAIT = 5.0


async def answer(given: Given, world: World) -> Facts:
    """Ask something, and return its spans as cases draw them."""
    for name, handler in _HANDLERS.items():
        if name in given:
            return await handler(given, world)
    raise Unknown(f"No handler of spans reads any of {', '.join(given)}.")


async def _run(given: Given, world: World) -> Facts:
    words = given["run"]
    if words not in RUNS:
        raise Unknown(f"No handler of spans has a run {words!r}; there are {', '.join(RUNS)}.")
    message = BLOCKED if words == "blocked" else QUESTION
    async with serve(world, *RUNS[words], name=AGENT) as server:
        spans = await _ask(server, message, has_memory=words.startswith("run_sql"))
    (root,) = [span for span in spans if span["name"] == _ROOT]
    linked = [
        span["name"]
        for span in spans
        if any(link["trace_id"] == root["trace_id"] for link in span.get("links") or ())
    ]
    return {
        "span_tree": Tree(spans, root),
        "linked": linked,
        "names": [span["name"] for span in spans],
    }


class Tree:
    """Spans below one, compared with what a case draws: which are below which, in any order."""

    def __init__(self, spans: Sequence[Record], root: Record) -> None:
        self._spans = sorted(spans, key=lambda one: int(one["start_time_unix_nano"]))
        self._root = root

    def __eq__(self, expected: object) -> bool:
        return self._matches(expected, self._root)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return dumps(self._draw(self._root)).decode()

    def _list_children(self, span: Record) -> Sequence[Record]:
        return [one for one in self._spans if one.get("parent_span_id") == span["span_id"]]

    def _draw(self, span: Record) -> Any:
        children = [self._draw(one) for one in self._list_children(span)]
        name = self._name(span)
        return {name: children} if children else name

    def _name(self, span: Record) -> str:
        has_failed = (span.get("status") or {}).get("code") in (2, "ERROR", "error")
        is_retry = (span.get("attributes") or {}).get(_ATTEMPT, 1) > 1
        return span["name"] + (" (ERROR)" if has_failed else " (retry)" if is_retry else "")

    def _matches(self, expected: Any, span: Record) -> bool:
        if isinstance(expected, str):
            return self._is_named(expected, span)
        if not isinstance(expected, Mapping) or len(expected) != 1:
            return False
        ((name, below),) = expected.items()
        if not self._is_named(name, span):
            return False
        children = self._list_children(span)
        if len(children) != len(below):
            return False
        return self._pair(below, children)

    def _pair(self, below: Sequence[Any], children: Sequence[Record]) -> bool:
        """Return whether each of what is expected is another one of the children."""
        if not below:
            return not children
        return any(
            self._matches(below[0], child)
            and self._pair(below[1:], [*children[:at], *children[at + 1 :]])
            for at, child in enumerate(children)
        )

    def _is_named(self, expected: str, span: Record) -> bool:
        # a scripted model has no name
        pattern = re.sub(r"(\\ )?\\\{\w+\\\}", r"( \\S+)?", re.escape(expected))
        return re.fullmatch(pattern, self._name(span)) is not None


async def _ask(
    server: Server, message: str, *, has_memory: bool = False, **fields: Any
) -> Sequence[Record]:
    await server.post(PATHS[0], {"message": message, **fields})
    return await read_spans(server, has_memory=has_memory)


async def read_spans(server: Server, *, has_memory: bool = False) -> Sequence[Record]:
    """Return all spans once the question's own is there, and that of memory if it is awaited."""
    store: Any = server.runtime.telemetry.store  # pyright: ignore[reportAttributeAccessIssue]
    wanted = {_ROOT, "upsert_memory"} if has_memory else {_ROOT}
    async with asyncio.timeout(_WAIT):
        while True:
            spans: Sequence[Record] = await store.query_spans("", TraceFilter())
            if wanted <= {span["name"] for span in spans}:
                return spans
            await asyncio.sleep(0.01)


async def _hide_content(given: Given, world: World) -> Facts:
    """Ask with words that only a person could know, and look for them in every span."""
    capture = given["capture"]
    content = {"NO_CONTENT": "none", "SPAN_ONLY": "local"}.get(capture)
    if content is None:
        raise Unknown(f"No handler of spans captures {capture!r}.")
    sql = f"SELECT count(*) AS n FROM eval_data WHERE query = '{MARK}'"
    turns = [call("run_sql", {"sql": sql}), say(f"{MARK} is in no row.")]
    telemetry = {"store": "memory", "content": content, "export": False}
    async with serve(world, *turns, telemetry=telemetry) as server:
        spans = await _ask(server, f"How often is {MARK} asked?")
    texts = [
        str((span.get("attributes") or {}).get("db.query.text", ""))
        for span in spans
        if "db.system.name" in (span.get("attributes") or {})
    ]
    is_masked = bool(texts) and all(not text or text == fingerprint_sql(text) for text in texts)
    return {
        "no_attribute_contains_user_text": MARK not in dumps(list(spans)).decode(),
        "db.query.text": Prose(is_masked, texts),
    }


async def _run_alone(given: Given, world: World) -> Facts:
    """Export nothing, and look whether spans are there all the same."""
    if given["exporters"] != "none":
        raise Unknown(f"No handler of spans exports by {given['exporters']!r}.")
    async with serve(world, *RUNS["success"]) as server:
        spans = await _ask(server, QUESTION)
        mirror = getattr(server.runtime.telemetry, "mirror", None)
    return {
        "sdk_started": isinstance(mirror, SdkMirror),
        "debug_panel_still_has_spans": bool(spans),
    }


async def _stream(given: Given, world: World) -> Facts:
    """Answer in so many pieces, and count the spans of what is sent."""
    words = [f"word{number} " for number in range(int(given["sse_chunks"]))]
    async with serve(world, say(words)) as server:
        spans = await _ask(server, QUESTION)
    sends = [span for span in spans if "send" in span["name"] or "receive" in span["name"]]
    return {"http_send_spans": len(sends)}


_HANDLERS: Mapping[str, Any] = {
    "run": _run,
    "capture": _hide_content,
    "exporters": _run_alone,
    "sse_chunks": _stream,
}
"""What is given → who answers it; the first that is there."""
