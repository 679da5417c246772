"""Further scripts of the agent: what models, agents and servers may do beside the usual."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

Event = dict[str, Any]
Script = Callable[[int], Iterator[Event]]

ALL = 1_000_000
"""A size of pieces with which everything is one piece."""

TEXT = {"id": "root", "component": "Text", "text": "Hi"}
CARDS = [
    {"id": "root", "component": "Column", "children": {"componentId": "card", "path": "/rows"}},
    {"id": "card", "component": "Text", "text": {"path": "name"}},
]
ROWS = [{"name": "A1"}, {"name": "B2"}, {"name": "C3"}]
TREE = [
    {"id": "root", "component": "Column", "children": ["t"]},
    {"id": "t", "component": "Text", "text": "Hello"},
]
GONE = [{"id": "root", "component": "Column", "children": ["gone"]}]
HARD = '\u4e16\u754c "quoted" back\\slash\n\ttab \U0001f600 \u00e9'
ESCAPED = '"\\u4e16\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\"\\\\"'


def write(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def begin(key: str, tool: str = "render_a2ui", **more: Any) -> Event:
    return {"type": "TOOL_CALL_START", "toolCallId": key, "toolCallName": tool, **more}


def args(key: str, value: Any, size: int = ALL) -> list[Event]:
    text = write(value)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [{"type": "TOOL_CALL_ARGS", "toolCallId": key, "delta": piece} for piece in pieces]


def end(key: str) -> Event:
    return {"type": "TOOL_CALL_END", "toolCallId": key}


def call(key: str, tool: str, value: Any, size: int = ALL) -> list[Event]:
    return [begin(key, tool), *args(key, value, size), end(key)]


def draw(key: str, value: Any, size: int = ALL) -> list[Event]:
    return call(key, "render_a2ui", value, size)


def result(key: str, value: Any) -> Event:
    identity = {"messageId": f"tr-{key}", "toolCallId": key}
    return {"type": "TOOL_CALL_RESULT", **identity, "content": write(value), "role": "tool"}


def say(text: str, key: str) -> list[Event]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": key, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": key, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": key},
    ]


def surface(name: str = "s1", components: Any = TREE, **more: Any) -> dict[str, Any]:
    return {"surfaceId": name, "components": components, **more}


def op(kind: str, name: str = "s1", **more: Any) -> dict[str, Any]:
    return {"version": "v0.9", kind: {"surfaceId": name, **more}}


def make(name: str = "s1") -> list[Any]:
    components = op("updateComponents", name, components=[TEXT])
    return [op("createSurface", name, catalogId="acme"), components]


def ops(*operations: Any, **more: Any) -> dict[str, Any]:
    return {"a2ui_operations": [*operations], **more}


def page(value: Any, size: int = ALL, key: str = "g1") -> list[Event]:
    return call(key, "generateSandboxedUi", value, size)


def interleave(*streams: list[Event]) -> list[Event]:
    return [event for events in zip_longest(*streams) for event in events if event is not None]


def activity(key: str, content: Any, **more: Any) -> Event:
    names = {"messageId": key, "activityType": "a2ui-surface"}
    return {"type": "ACTIVITY_SNAPSHOT", **names, "content": content, **more}


def chunk(**fields: Any) -> Event:
    return {"type": "TOOL_CALL_CHUNK", **fields}


def reply(key: str, value: Any, tool: str = "dash") -> list[Event]:
    return [*call(key, tool, "{}"), result(key, value)]


FAILED: Event = {"type": "RUN_ERROR", "message": "model died"}
NOISE: list[Event] = [
    {"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}},
    {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]},
    {"type": "STEP_STARTED", "stepName": "think"},
    {"type": "CUSTOM", "name": "seen", "value": {"x": 1}},
    {"type": "STEP_FINISHED", "stepName": "think"},
]
ASK = {"id": "i1", "reason": "tool_call", "message": "Sure?"}
PAGE = {
    "initialHeight": 320,
    "placeholderMessages": ["One", "Two"],
    "css": "p{color:red}",
    "html": '<p id="x">Hi \u4e16\u754c</p>\n',
    "jsFunctions": "function f(){return 1}",
    "jsExpressions": ["f()", "g('a')"],
}
NUMBERS = {"big": 2**63, "float": 1.0, "small": 1e-7, "huge": 1e21, "half": 0.5, "minus": -3}
MANY = [{"id": f"c{at}", "component": "Text", "text": f"{at}"} for at in range(120)]
WIDE = [{"id": "root", "component": "Column", "children": [one["id"] for one in MANY]}, *MANY]
PRETTY = json.dumps(surface("s1", CARDS, data={"rows": ROWS}), indent=2)
OUTER = begin("o1", "generate_a2ui")


def order(*keys: str) -> dict[str, Any]:
    values = {**surface("s1", CARDS), "data": {"rows": ROWS}, "catalogId": "https://m.example/c"}
    return {key: values[key] for key in keys}


def children(path: str, key: str, items: Any) -> dict[str, Any]:
    root = {**CARDS[0], "children": {"componentId": "card", "path": path}}
    return surface("s1", [root, CARDS[1]], data={key: items})


SURFACES: Mapping[str, list[Event]] = {
    "parallel": [
        *interleave([begin("r1"), *args("r1", surface("s1"), 30)], [begin("r2"), *args("r2", surface("s2"), 41)]),
        end("r1"),
        end("r2"),
    ],
    "parallel-one-invalid": [
        *interleave([begin("r1"), *args("r1", surface("s1", GONE), 30)], [begin("r2"), *args("r2", surface("s2"), 41)]),
        end("r2"),
        end("r1"),
    ],
    "parallel-in-outer": [
        OUTER,
        *interleave([begin("r1"), *args("r1", surface("s1"), 30)], [begin("r2"), *args("r2", surface("s2"), 41)]),
        end("r1"),
        end("r2"),
        end("o1"),
        result("o1", ops(*make("s1"), *make("s2"))),
    ],
    "outer-in-outer": [
        begin("a1", "plan"), *args("a1", "{}"), OUTER, *args("o1", "{}"),
        *draw("i1", surface(), 60),
        end("o1"), result("o1", ops(*make())), end("a1"), result("a1", "planned"), *draw("r2", surface("s2")),
    ],
    "outer-two-surfaces": [
        OUTER, *draw("i1", surface("s1")), *draw("i2", surface("s2")), end("o1"), result("o1", ops(*make("s1"), *make("s2"))),
    ],
    "outer-more-in-result": [OUTER, *draw("i1", surface("s1")), end("o1"), result("o1", ops(*make("s1"), *make("s2")))],
    "outer-other-in-result": [OUTER, *draw("i1", surface("s1")), end("o1"), result("o1", ops(*make("s2")))],
    "outer-three-attempts": [
        OUTER, *draw("i1", surface("s1", GONE), 40), *draw("i2", surface("s1", [TEXT, TEXT]), 40), *draw("i3", surface(), 40),
        end("o1"), result("o1", ops(*make())),
    ],
    "outer-draws-again": [OUTER, *draw("i1", surface("s1"), 40), *draw("i2", surface("s1", [TEXT]), 40), end("o1"), result("o1", "ok")],
    "outer-rejected-after": [OUTER, *draw("i1", surface("s1")), *draw("i2", surface("s1", GONE), 30), *draw("i3", surface("s1", [TEXT]), 30), end("o1"), result("o1", "ok")],
    "outer-without-result": [OUTER, *args("o1", "{}"), *draw("i1", surface(), 50), end("o1")],
    "outer-result-only": [OUTER, end("o1"), result("o1", ops(*make())), *draw("r1", surface("s1"))],
    "outer-exhausted-first": [OUTER, *draw("i1", surface("s1", GONE)), end("o1"), result("o1", {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": [{}, {}]}), *draw("r2", surface("s2"))],
    "exhausted-alone": reply("t1", {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": [{"n": 1}]}),
    "exhausted-no-attempts": reply("t1", {"code": "a2ui_recovery_exhausted", "error": "gave up"}),
    "exhausted-empty": reply("t1", {"code": "a2ui_recovery_exhausted", "error": "gave up", "attempts": []}),
    "exhausted-other-code": reply("t1", {"code": "other", "error": "a2ui_recovery_exhausted"}),
    "escapes-1": draw("r1", surface("s1", [{**TEXT, "text": HARD}]), 1),
    "escapes-3": draw("r1", '{"surfaceId":"s\\u0031","components":[{"id":"root","component":"Text","text":' + ESCAPED + "}]}", 3),
    "escapes-surrogates": draw("r1", '{"surfaceId":"s1","components":[{"id":"root","component":"Text","text":"\\ud83d\\ude00"}]}', 1),
    "unicode": draw("r1", surface("\u65e5\u672c", [{**TEXT, "text": "\U0001f600" * 30}], data={"\u00e9": "\u00fc"}), 7),
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
    "result-same-surface": [*reply("t1", ops(*make())), *reply("t2", ops(op("updateDataModel", "s1", path="/", value=1)))],
    "result-after-render": [*draw("r1", surface("s1")), *reply("t2", ops(op("updateDataModel", "s1", path="/", value=1), *make("s2")))],
    "result-mixed": reply("t1", ops(*make("a"), op("deleteSurface", "b"), op("updateDataModel", "a", path="/x", value=[1]))),
    "result-parallel": [*call("t1", "dash", "{}"), *call("t2", "dash", "{}"), result("t1", ops(*make("a"))), result("t2", ops(*make("b")))],
    "result-parallel-reversed": [*call("t1", "dash", "{}"), *call("t2", "dash", "{}"), result("t2", ops(*make("b"))), result("t1", ops(*make("a")))],
    "result-triple": reply("t1", json.dumps(json.dumps(json.dumps(ops(*make()))))),
    "result-double": reply("t1", json.dumps(json.dumps(ops(*make())))),
    "result-text": reply("t1", "the a2ui_operations are not JSON"),
    "result-object": reply("t1", {"a2ui_operations": {"a": 1}}),
    "result-null": reply("t1", {"a2ui_operations": None}),
    "result-nested": reply("t1", {"content": ops(*make())}),
    "result-no-call": [result("t9", ops(*make()))],
    "result-strings": reply("t1", ops("text", None, 5, *make())),
    "result-old-version": reply("t1", ops({"version": "v0.8", "createSurface": {"surfaceId": "s1"}})),
    "result-no-version": reply("t1", ops({"createSurface": {"surfaceId": "s1", "catalogId": "acme"}})),
    "result-no-id": reply("t1", ops({"version": "v0.9", "createSurface": {"catalogId": "acme"}})),
    "result-two-kinds": reply("t1", ops({**make()[0], **make()[1]})),
    "result-unknown-key": reply("t1", ops({**make()[0], "note": "x"}, make()[1])),
    "result-numbers": reply("t1", ops(*make(), op("updateDataModel", "s1", path="/", value=NUMBERS))),
    "result-unicode": reply("t1", ops(*make("\u65e5"), op("updateDataModel", "\u65e5", path="/", value=HARD))),
    "numbers": draw("r1", surface(data=NUMBERS), 16),
    "empty-args": [begin("r1"), end("r1")],
    "args-array": draw("r1", [1, 2]),
    "args-text": draw("r1", '"x"'),
    "args-number": draw("r1", "5"),
    "args-null": draw("r1", "null"),
    "args-empty-object": draw("r1", "{}"),
    "own-activity-before": [activity("a2ui-surface-r1", {"status": "mine"}, replace=True), *draw("r1", surface())],
    "own-activity-after": [*draw("r1", surface()), activity("a2ui-surface-r1", ops(*make("own")), replace=True)],
    "own-activity-keep": [activity("own-1", ops(*make("a")), replace=True), activity("own-1", ops(*make("b")), replace=False)],
    "own-activity-delta": [
        activity("own-1", ops(*make("a")), replace=True),
        {"type": "ACTIVITY_DELTA", "messageId": "own-1", "activityType": "a2ui-surface", "patch": [{"op": "add", "path": "/a2ui_operations/-", "value": op("deleteSurface", "a")}]},
    ],
    "error-after-paint": [*draw("r1", surface()), FAILED],
    "error-after-result": [*draw("r1", surface()), result("r1", {"status": "ok"}), FAILED],
    "error-before": [FAILED],
    "no-end": [begin("r1"), *args("r1", surface())],
    "interrupt": [*draw("r1", surface()), {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [ASK]}}],
    "interrupt-custom": [*draw("r1", surface()), {"type": "CUSTOM", "name": "on_interrupt", "value": "Sure?"}],
    "page-tool-first": [*call("w1", "getWeather", {"city": "Oslo"}), *draw("r1", surface(), 60)],
    "page-tool-last": [*draw("r1", surface(), 60), *call("w1", "getWeather", {"city": "Oslo"})],
    "noise": [begin("r1"), *interleave(args("r1", surface(), 30), NOISE), end("r1")],
    "text-inside": [begin("r1"), *args("r1", write(surface())[:50]), *say("meanwhile", "m-i"), *args("r1", write(surface())[50:]), end("r1")],
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
    "items-mixed": draw("r1", children("/rows", "rows", [{"a": [1, {"b": "]"}]}, None, True, "x,y"]), 4),
    "items-empty": draw("r1", children("/rows", "rows", []), 10),
    "items-many": draw("r1", children("/rows", "rows", [{"name": f"{at}"} for at in range(60)]), 9),
    "components-many": draw("r1", surface("s1", WIDE), 200),
    "components-empty": draw("r1", surface("s1", [])),
    "components-null": draw("r1", surface("s1", None)),
    "components-object": draw("r1", surface("s1", {"root": TEXT})),
    "components-text": draw("r1", surface("s1", ["root"])),
    "components-untyped": draw("r1", surface("s1", [{"id": "root"}])),
    "components-no-id": draw("r1", surface("s1", [{"component": "Text"}])),
    "components-cycle": draw("r1", surface("s1", [{"id": "root", "component": "Column", "children": ["root"]}])),
    "components-duplicate": draw("r1", surface("s1", [TEXT, TEXT])),
    "schema-missing": draw("r1", surface("s1", [{"id": "root", "component": "Column"}])),
    "components-child": draw("r1", surface("s1", [{"id": "root", "component": "Card", "child": "gone"}])),
    "components-twice": draw("r1", '{"surfaceId":"s1","components":' + write([TEXT]) + ',"components":' + write(TREE) + "}", 60),
    "surface-twice": draw("r1", '{"surfaceId":"s1","surfaceId":"s2","components":' + write([TEXT]) + "}", 40),
    "surface-number": draw("r1", {"surfaceId": 5, "components": TREE}),
    "surface-empty": draw("r1", surface("")),
    "surface-nested": draw("r1", {"extra": {"surfaceId": "no", "components": [TEXT]}, **surface()}, 30),
    "data-null": draw("r1", surface(data=None), 30),
    "data-list": draw("r1", surface(data=[1, 2]), 30),
    "data-empty": draw("r1", surface(data={}), 30),
    "data-text": draw("r1", surface(data="x"), 30),
    "data-twice": draw("r1", write(surface(data={"a": 1}))[:-1] + ',"data":{"b":2}}', 30),
    "data-in-component": draw("r1", surface("s1", [{**TEXT, "data": {"a": 1}, "items": [1]}], data={"b": 2}), 30),
    "json-trailing-comma": draw("r1", write(surface())[:-2] + ",]}", 40),
    "json-after": draw("r1", write(surface()) + " and more", 40),
    "json-before": draw("r1", "```json\n" + write(surface()), 40),
    "json-cut-after-components": draw("r1", write(surface())[:-1], 40),
    "json-cut-in-data": draw("r1", write(surface("s1", CARDS, data={"rows": ROWS}))[:-12], 20),
    "json-newline": draw("r1", '{"surfaceId":"s1","components":[{"id":"root","component":"Text","text":"a\nb"}]}', 40),
    "json-broken-data": draw("r1", write(surface())[:-1] + ',"data":{"a":oops}}', 40),
}  # fmt: skip

PAGES: Mapping[str, list[Event]] = {
    **{
        f"page-order-{at}": page({key: PAGE[key] for key in keys}, size)
        for at, (keys, size) in enumerate(
            [
                (("html", "css", "jsFunctions", "jsExpressions", "initialHeight", "placeholderMessages"), 17),
                (("jsExpressions", "jsFunctions", "html", "css"), 11),
                (("placeholderMessages", "initialHeight", "css", "html"), 13),
                (("css", "initialHeight", "html"), 9),
                (("jsFunctions", "placeholderMessages", "html", "initialHeight", "css"), 23),
                (("initialHeight", "placeholderMessages", "css", "html", "jsFunctions", "jsExpressions"), 1),
                (("initialHeight", "placeholderMessages", "css", "html", "jsFunctions", "jsExpressions"), 7),
                (("html", "initialHeight"), ALL),
            ]
        )
    },
    "page-only-height": page({"initialHeight": 100}, 5),
    "page-only-html": page({"html": "<p>x</p>"}, 5),
    "page-only-css": page({"css": "p{}"}),
    "page-empty-texts": page({"initialHeight": 0, "css": "", "html": "", "jsFunctions": ""}, 6),
    "page-empty-lists": page({"placeholderMessages": [], "jsExpressions": [], "html": "x"}, 6),
    "page-height-float": page({"initialHeight": 1.5, "html": "x"}, 6),
    "page-height-minus": page({"initialHeight": -1, "html": "x"}, 6),
    "page-unknown-keys": page({"title": "t", "html": "x", "meta": {"css": "no", "html": ["no"]}, "list": [1, [2]]}, 6),
    "page-unknown-only": page({"title": "t"}),
    "page-nested-first": page({"meta": {"html": "no", "a": [{"css": "no"}]}, "css": "p{}", "html": "<p>"}, 6),
    "page-escapes-1": page('{"html":"<p class=\\"a\\">\\u4e16\\ud83d\\ude00\\/\\n\\t\\\\</p>","css":' + ESCAPED + "}", 1),
    "page-escapes-3": page('{"html":"<p class=\\"a\\">\\u4e16\\ud83d\\ude00\\/\\n\\t\\\\</p>","css":' + ESCAPED + "}", 3),
    "page-unicode": page({"css": "\u00e9", "html": HARD * 3}, 5),
    "page-huge": page({"css": "p{}", "html": "<p>0123456789</p>" * 300}, 50),
    "page-two-interleaved": [
        *interleave(page(PAGE, 30, "g1")[:-1], page({**PAGE, "initialHeight": 5}, 41, "g2")[:-1]),
        end("g2"),
        end("g1"),
    ],
    "page-two": [*page(PAGE, 60, "g1"), *page({"html": "<b>2</b>"}, 9, "g2")],
    "page-with-surface": [*interleave(page(PAGE, 50)[:-1], draw("r1", surface(), 40)[:-1]), end("g1"), end("r1")],
    "page-text-inside": [*page(PAGE, 60)[:3], *say("meanwhile", "m-i"), *page(PAGE, 60)[3:]],
    "page-held-text": [begin("g1", "generateSandboxedUi"), *say("meanwhile", "m-i"), *args("g1", PAGE, 60), end("g1")],
    "page-noise": [*interleave(page(PAGE, 40)[:-1], NOISE), end("g1")],
    "page-chunks": [chunk(toolCallId="g1", toolCallName="generateSandboxedUi", delta=write(PAGE)[:70]), chunk(delta=write(PAGE)[70:])],
    "page-no-end": page(PAGE, 60)[:-1],
    "page-cut": page(write(PAGE)[:90], 20),
    "page-error-late": [*page(PAGE, 60), FAILED],
    "page-result": [*page(PAGE, 60), result("g1", {"ok": True}), *say("shown", "m-s")],
    "page-other-tool": [*call("t1", "dash", "{}"), *page({"html": "<p>"}, 4), result("t1", "ok")],
    "page-types-list": page({"placeholderMessages": "text", "jsExpressions": {"a": 1}, "html": "x"}, 7),
    "page-types-items": page({"placeholderMessages": [1, None, ["x"], {"a": "b"}, "ok"], "html": "x"}, 7),
    "page-types-html": page({"css": "p{}", "html": ["<p>", "</p>"]}, 7),
    "page-pretty": page(json.dumps(PAGE, indent=2), 25),
}  # fmt: skip

APPS: Mapping[str, list[Event]] = {
    **{f"app-{name}": call("c1", name, {"a": 1}) for name in (
        "image", "image_and_text", "structured", "structured_error", "empty", "empty_text", "linked", "embedded",
        "audio", "with_meta", "only_meta", "unknown_part", "annotated", "echo", "no_content", "many_texts",
        "model_only", "both", "for_nobody", "null_visibility", "text_visibility", "both_keys", "number_uri", "legacy",
        "wide_schema", "untold", "page_2_tool",
    )},
    "app-echo-unicode": call("c1", "echo", {"t": HARD}, 9),
    "app-echo-empty": [begin("c1", "echo"), end("c1")],
    "app-echo-list": call("c1", "echo", [1]),
    "app-echo-text": call("c1", "echo", '"x"'),
    "app-parallel": [*interleave([begin("c1", "echo"), *args("c1", {"a": 1}, 3)], [begin("c2", "echo"), *args("c2", {"b": 2}, 3)]), end("c2"), end("c1")],
    "app-one-answered": [*call("c1", "echo", {"a": 1}), *call("c2", "echo", {"b": 2}), result("c1", "mine")],
    "app-two-failing": [*call("c1", "hard_error", {}), *call("c2", "echo", {"b": 2})],
    "app-with-surface": [*call("c1", "echo", {"a": 1}), *draw("r1", surface(), 60)],
    "app-with-page": [*call("c1", "echo", {"a": 1}), *page(PAGE, 60)],
    "app-and-page-tool": [*call("c1", "echo", {"a": 1}), *call("w1", "getWeather", {"city": "Oslo"})],
    "app-parent": [*say("look", "m-p"), begin("c1", "echo", parentMessageId="m-p"), *args("c1", {}), end("c1"), *say("after", "m-q")],
    "app-chunks": [chunk(toolCallId="c1", toolCallName="echo", delta='{"a"'), chunk(delta=":1}")],
    "app-no-end": [begin("c1", "echo"), *args("c1", {"a": 1})],
    "app-surface-result": call("c1", "surface", {}),
    "app-error-after": [*call("c1", "echo", {}), FAILED],
    "app-interrupt": [*call("c1", "echo", {}), {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [{**ASK, "toolCallId": "c1"}]}}],
    "app-weather": call("c1", "show_weather", {"city": "Oslo"}),
}  # fmt: skip

MORE: Mapping[str, list[Event]] = {**SURFACES, **PAGES, **APPS}
"""The events of each script between the first and the last, which it may bring along."""
