"""Agents that draw surfaces, in calls and in results."""

import json
from collections.abc import Mapping
from typing import Any

from tests.conformance.genui.scripts.events import (
    ALL,
    ASK,
    CARDS,
    ESCAPED,
    FAILED,
    GONE,
    HARD,
    NOISE,
    NUMBERS,
    OUTER,
    PRETTY,
    ROWS,
    TEXT,
    TREE,
    WIDE,
    Event,
    activity,
    args,
    begin,
    call,
    chunk,
    draw,
    end,
    interleave,
    make,
    op,
    ops,
    reply,
    result,
    say,
    surface,
    write,
)

ZEBRA = [
    {"id": "root", "component": "Column", "children": ["z"]},
    {"id": "z", "component": "Zebra"},
]


def order(*keys: str) -> dict[str, Any]:
    values = {**surface("s1", CARDS), "data": {"rows": ROWS}, "catalogId": "https://m.example/c"}
    return {key: values[key] for key in keys}


def children(path: str, key: str, items: Any) -> dict[str, Any]:
    root = {**CARDS[0], "children": {"componentId": "card", "path": path}}
    return surface("s1", [root, CARDS[1]], data={key: items})


SURFACES: Mapping[str, list[Event]] = {
    "parallel": [
        *interleave(
            [begin("r1"), *args("r1", surface("s1"), 30)],
            [begin("r2"), *args("r2", surface("s2"), 41)],
        ),
        end("r1"),
        end("r2"),
    ],
    "parallel-one-invalid": [
        *interleave(
            [begin("r1"), *args("r1", surface("s1", GONE), 30)],
            [begin("r2"), *args("r2", surface("s2"), 41)],
        ),
        end("r2"),
        end("r1"),
    ],
    "parallel-in-outer": [
        OUTER,
        *interleave(
            [begin("r1"), *args("r1", surface("s1"), 30)],
            [begin("r2"), *args("r2", surface("s2"), 41)],
        ),
        end("r1"),
        end("r2"),
        end("o1"),
        result("o1", ops(*make("s1"), *make("s2"))),
    ],
    "outer-in-outer": [
        begin("a1", "plan"),
        *args("a1", "{}"),
        OUTER,
        *args("o1", "{}"),
        *draw("i1", surface(), 60),
        end("o1"),
        result("o1", ops(*make())),
        end("a1"),
        result("a1", "planned"),
        *draw("r2", surface("s2")),
    ],
    "outer-two-surfaces": [
        OUTER,
        *draw("i1", surface("s1")),
        *draw("i2", surface("s2")),
        end("o1"),
        result("o1", ops(*make("s1"), *make("s2"))),
    ],
    "outer-more-in-result": [
        OUTER,
        *draw("i1", surface("s1")),
        end("o1"),
        result("o1", ops(*make("s1"), *make("s2"))),
    ],
    "outer-other-in-result": [
        OUTER,
        *draw("i1", surface("s1")),
        end("o1"),
        result("o1", ops(*make("s2"))),
    ],
    "outer-three-attempts": [
        OUTER,
        *draw("i1", surface("s1", GONE), 40),
        *draw("i2", surface("s1", [TEXT, TEXT]), 40),
        *draw("i3", surface(), 40),
        end("o1"),
        result("o1", ops(*make())),
    ],
    "outer-draws-again": [
        OUTER,
        *draw("i1", surface("s1"), 40),
        *draw("i2", surface("s1", [TEXT]), 40),
        end("o1"),
        result("o1", "ok"),
    ],
    "outer-rejected-after": [
        OUTER,
        *draw("i1", surface("s1")),
        *draw("i2", surface("s1", GONE), 30),
        *draw("i3", surface("s1", [TEXT]), 30),
        end("o1"),
        result("o1", "ok"),
    ],
    "outer-without-result": [OUTER, *args("o1", "{}"), *draw("i1", surface(), 50), end("o1")],
    "outer-result-only": [OUTER, end("o1"), result("o1", ops(*make())), *draw("r1", surface("s1"))],
    "outer-exhausted-first": [
        OUTER,
        *draw("i1", surface("s1", GONE)),
        end("o1"),
        result("o1", {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": [{}, {}]}),
        *draw("r2", surface("s2")),
    ],
    "outer-exhausted": [
        OUTER,
        *args("o1", "{}"),
        *draw("i1", surface("s1", GONE)),
        *draw("i2", surface("s1", [{**TEXT, "id": "a"}])),
        *draw("i3", surface("s1", ZEBRA)),
        end("o1"),
        result(
            "o1",
            {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": [{}, {}, {}]},
        ),
        *say("could not draw", "m-n"),
    ],
    "unknown-component": draw("r1", surface("s1", ZEBRA)),
    "exhausted-alone": reply(
        "t1", {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": [{"n": 1}]}
    ),
    "exhausted-no-attempts": reply("t1", {"code": "a2ui_recovery_exhausted", "error": "gave up"}),
    "exhausted-empty": reply(
        "t1", {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": []}
    ),
    "exhausted-other-code": reply("t1", {"code": "other", "error": "a2ui_recovery_exhausted"}),
    "escapes-1": draw("r1", surface("s1", [{**TEXT, "text": HARD}]), 1),
    "escapes-3": draw(
        "r1",
        '{"surfaceId":"s\\u0031","components":[{"id":"root","component":"Text","text":'
        + ESCAPED
        + "}]}",
        3,
    ),
    "escapes-surrogates": draw(
        "r1",
        '{"surfaceId":"s1","components":[{"id":"root","component":"Text","text":"\\ud83d\\ude00"}]}',
        1,
    ),
    "unicode": draw(
        "r1",
        surface("\u65e5\u672c", [{**TEXT, "text": "\U0001f600" * 30}], data={"\u00e9": "\u00fc"}),
        7,
    ),
    "chunks": [
        chunk(toolCallId="r1", toolCallName="render_a2ui", delta=write(surface())[:40]),
        chunk(toolCallId="r1", delta=write(surface())[40:]),
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m-c", "role": "assistant", "delta": "done"},
    ],
    "chunks-bare": [
        chunk(toolCallId="r1", toolCallName="render_a2ui", parentMessageId="m-p"),
        chunk(delta=write(surface())[:40]),
        chunk(delta=write(surface())[40:]),
    ],
    "chunks-two": [
        chunk(toolCallId="r1", toolCallName="render_a2ui", delta=write(surface())),
        chunk(toolCallId="r2", toolCallName="render_a2ui", delta=write(surface("s2"))),
    ],
    **{
        f"order-{name}": draw("r1", order(*keys), size)
        for name, keys, size in (
            ("data-first", ("surfaceId", "data", "components"), 20),
            ("data-first-once", ("surfaceId", "data", "components"), ALL),
            ("surface-last", ("components", "data", "surfaceId"), 20),
            ("surface-last-once", ("components", "data", "surfaceId"), ALL),
            ("surface-last-char", ("components", "data", "surfaceId"), 1),
            ("data-first-surface-last", ("data", "components", "surfaceId"), 25),
            ("catalog-last", ("surfaceId", "components", "data", "catalogId"), 20),
            ("catalog-middle", ("surfaceId", "components", "catalogId", "data"), 15),
            ("catalog-first", ("catalogId", "surfaceId", "components"), 30),
            ("char", ("surfaceId", "components", "data"), 1),
            ("three", ("surfaceId", "components", "data"), 3),
        )
    },
    "pretty": draw("r1", PRETTY, 33),
    "catalog-basic": draw("r1", surface(catalogId="basic"), 40),
    "catalog-empty": draw("r1", surface(catalogId=""), 40),
    "catalog-number": draw("r1", surface(catalogId=5), 40),
    "same-surface-twice": [*draw("r1", surface()), *draw("r2", surface("s1", [TEXT]))],
    "result-same-surface": [
        *reply("t1", ops(*make())),
        *reply("t2", ops(op("updateDataModel", "s1", path="/", value=1))),
    ],
    "result-after-render": [
        *draw("r1", surface("s1")),
        *reply("t2", ops(op("updateDataModel", "s1", path="/", value=1), *make("s2"))),
    ],
    "result-mixed": reply(
        "t1",
        ops(*make("a"), op("deleteSurface", "b"), op("updateDataModel", "a", path="/x", value=[1])),
    ),
    "result-parallel": [
        *call("t1", "dash", "{}"),
        *call("t2", "dash", "{}"),
        result("t1", ops(*make("a"))),
        result("t2", ops(*make("b"))),
    ],
    "result-parallel-reversed": [
        *call("t1", "dash", "{}"),
        *call("t2", "dash", "{}"),
        result("t2", ops(*make("b"))),
        result("t1", ops(*make("a"))),
    ],
    "result-triple": reply("t1", json.dumps(json.dumps(json.dumps(ops(*make()))))),
    "result-double": reply("t1", json.dumps(json.dumps(ops(*make())))),
    "result-text": reply("t1", "the a2ui_operations are not JSON"),
    "result-object": reply("t1", {"a2ui_operations": {"a": 1}}),
    "result-null": reply("t1", {"a2ui_operations": None}),
    "result-nested": reply("t1", {"content": ops(*make())}),
    "result-no-call": [result("t9", ops(*make()))],
    "result-strings": reply("t1", ops("text", None, 5, *make())),
    "result-old-version": reply(
        "t1", ops({"version": "v0.8", "createSurface": {"surfaceId": "s1"}})
    ),
    "result-no-version": reply(
        "t1", ops({"createSurface": {"surfaceId": "s1", "catalogId": "acme"}})
    ),
    "result-no-id": reply("t1", ops({"version": "v0.9", "createSurface": {"catalogId": "acme"}})),
    "result-two-kinds": reply("t1", ops({**make()[0], **make()[1]})),
    "result-unknown-key": reply("t1", ops({**make()[0], "note": "x"}, make()[1])),
    "result-numbers": reply(
        "t1", ops(*make(), op("updateDataModel", "s1", path="/", value=NUMBERS))
    ),
    "result-unicode": reply(
        "t1", ops(*make("\u65e5"), op("updateDataModel", "\u65e5", path="/", value=HARD))
    ),
    "numbers": draw("r1", surface(data=NUMBERS), 16),
    "empty-args": [begin("r1"), end("r1")],
    "args-array": draw("r1", [1, 2]),
    "args-text": draw("r1", '"x"'),
    "args-number": draw("r1", "5"),
    "args-null": draw("r1", "null"),
    "args-empty-object": draw("r1", "{}"),
    "own-activity-before": [
        activity("a2ui-surface-r1", {"status": "mine"}, replace=True),
        *draw("r1", surface()),
    ],
    "own-activity-after": [
        *draw("r1", surface()),
        activity("a2ui-surface-r1", ops(*make("own")), replace=True),
    ],
    "own-activity-keep": [
        activity("own-1", ops(*make("a")), replace=True),
        activity("own-1", ops(*make("b")), replace=False),
    ],
    "own-activity-delta": [
        activity("own-1", ops(*make("a")), replace=True),
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "own-1",
            "activityType": "a2ui-surface",
            "patch": [
                {"op": "add", "path": "/a2ui_operations/-", "value": op("deleteSurface", "a")}
            ],
        },
    ],
    "error-after-paint": [*draw("r1", surface()), FAILED],
    "error-after-result": [*draw("r1", surface()), result("r1", {"status": "ok"}), FAILED],
    "error-before": [FAILED],
    "no-end": [begin("r1"), *args("r1", surface())],
    "interrupt": [
        *draw("r1", surface()),
        {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [ASK]}},
    ],
    "interrupt-custom": [
        *draw("r1", surface()),
        {"type": "CUSTOM", "name": "on_interrupt", "value": "Sure?"},
    ],
    "page-tool-first": [*call("w1", "getWeather", {"city": "Oslo"}), *draw("r1", surface(), 60)],
    "page-tool-last": [*draw("r1", surface(), 60), *call("w1", "getWeather", {"city": "Oslo"})],
    "noise": [begin("r1"), *interleave(args("r1", surface(), 30), NOISE), end("r1")],
    "text-inside": [
        begin("r1"),
        *args("r1", write(surface())[:50]),
        *say("meanwhile", "m-i"),
        *args("r1", write(surface())[50:]),
        end("r1"),
    ],
    "reasoning": [
        {"type": "REASONING_START", "messageId": "th"},
        {"type": "REASONING_MESSAGE_START", "messageId": "th", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "th", "delta": "hm"},
        {"type": "REASONING_MESSAGE_END", "messageId": "th"},
        {"type": "REASONING_END", "messageId": "th"},
        *draw("r1", surface()),
    ],
    "log-event": [*call("l1", "log_a2ui_event", "{}"), *draw("r1", surface())],
    "draw-and-render": [*call("d1", "draw_ui", surface("s1"), 50), *draw("r1", surface("s2"), 50)],
    "paint": [*call("d1", "paint", surface("s1"), 50), *draw("r1", surface("s2"), 50)],
    "own-result-rendered": [*draw("r1", surface()), result("r1", {"status": "rendered"})],
    "own-result-rejected": [*draw("r1", surface("s1", GONE)), result("r1", {"error": "no"})],
    "own-result-rescues": [*draw("r1", surface("s1", GONE)), result("r1", ops(*make()))],
    "own-result-more": [*draw("r1", surface("s1")), result("r1", ops(*make("s2")))],
    "path-deep": draw("r1", children("/a/rows", "a", {"rows": ROWS}), 15),
    "path-plain": draw("r1", children("rows", "rows", ROWS), 15),
    "path-double": draw("r1", children("//rows", "rows", ROWS), 15),
    "path-root": draw("r1", children("/", "rows", ROWS), 15),
    "path-empty": draw("r1", children("", "items", ROWS), 15),
    "items": draw("r1", surface("s1", TREE, data={"items": ROWS, "more": ROWS}), 15),
    "items-nested": draw("r1", surface("s1", TREE, data={"a": {"items": ROWS}, "items": ROWS}), 15),
    "items-text": draw("r1", children("/rows", "rows", ["a", "b", "c"]), 3),
    "items-number": draw("r1", children("/rows", "rows", [1, 2.5, -3]), 3),
    "items-list": draw("r1", children("/rows", "rows", [[1], [2], {"a": [3]}]), 3),
    "items-mixed": draw(
        "r1", children("/rows", "rows", [{"a": [1, {"b": "]"}]}, None, True, "x,y"]), 4
    ),
    "items-empty": draw("r1", children("/rows", "rows", []), 10),
    "items-many": draw("r1", children("/rows", "rows", [{"name": f"{at}"} for at in range(60)]), 9),
    "components-many": draw("r1", surface("s1", WIDE), 200),
    "components-empty": draw("r1", surface("s1", [])),
    "components-null": draw("r1", surface("s1", None)),
    "components-object": draw("r1", surface("s1", {"root": TEXT})),
    "components-text": draw("r1", surface("s1", ["root"])),
    "components-untyped": draw("r1", surface("s1", [{"id": "root"}])),
    "components-no-id": draw("r1", surface("s1", [{"component": "Text"}])),
    "components-cycle": draw(
        "r1", surface("s1", [{"id": "root", "component": "Column", "children": ["root"]}])
    ),
    "components-duplicate": draw("r1", surface("s1", [TEXT, TEXT])),
    "schema-missing": draw("r1", surface("s1", [{"id": "root", "component": "Column"}])),
    "components-child": draw(
        "r1", surface("s1", [{"id": "root", "component": "Card", "child": "gone"}])
    ),
    "components-twice": draw(
        "r1",
        '{"surfaceId":"s1","components":' + write([TEXT]) + ',"components":' + write(TREE) + "}",
        60,
    ),
    "surface-twice": draw(
        "r1", '{"surfaceId":"s1","surfaceId":"s2","components":' + write([TEXT]) + "}", 40
    ),
    "surface-number": draw("r1", {"surfaceId": 5, "components": TREE}),
    "surface-empty": draw("r1", surface("")),
    "surface-nested": draw(
        "r1", {"extra": {"surfaceId": "no", "components": [TEXT]}, **surface()}, 30
    ),
    "data-null": draw("r1", surface(data=None), 30),
    "data-list": draw("r1", surface(data=[1, 2]), 30),
    "data-empty": draw("r1", surface(data={}), 30),
    "data-text": draw("r1", surface(data="x"), 30),
    "data-twice": draw("r1", write(surface(data={"a": 1}))[:-1] + ',"data":{"b":2}}', 30),
    "data-in-component": draw(
        "r1", surface("s1", [{**TEXT, "data": {"a": 1}, "items": [1]}], data={"b": 2}), 30
    ),
    "json-trailing-comma": draw("r1", write(surface())[:-2] + ",]}", 40),
    "json-after": draw("r1", write(surface()) + " and more", 40),
    "json-before": draw("r1", "```json\n" + write(surface()), 40),
    "json-cut-after-components": draw("r1", write(surface())[:-1], 40),
    "json-cut-in-data": draw("r1", write(surface("s1", CARDS, data={"rows": ROWS}))[:-12], 20),
    "json-newline": draw(
        "r1", '{"surfaceId":"s1","components":[{"id":"root","component":"Text","text":"a\nb"}]}', 40
    ),
    "json-broken-data": draw("r1", write(surface())[:-1] + ',"data":{"a":oops}}', 40),
}
