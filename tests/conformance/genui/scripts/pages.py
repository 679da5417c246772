"""Agents that write pages for a sandbox."""

import json
from collections.abc import Mapping

from tests.conformance.genui.scripts.events import (
    ALL,
    ESCAPED,
    FAILED,
    HARD,
    NOISE,
    PAGE,
    Event,
    args,
    begin,
    call,
    chunk,
    draw,
    end,
    interleave,
    page,
    result,
    say,
    surface,
    write,
)

PAGES: Mapping[str, list[Event]] = {
    **{
        f"page-order-{at}": page({key: PAGE[key] for key in keys}, size)
        for at, (keys, size) in enumerate(
            [
                (
                    (
                        "html",
                        "css",
                        "jsFunctions",
                        "jsExpressions",
                        "initialHeight",
                        "placeholderMessages",
                    ),
                    17,
                ),
                (("jsExpressions", "jsFunctions", "html", "css"), 11),
                (("placeholderMessages", "initialHeight", "css", "html"), 13),
                (("css", "initialHeight", "html"), 9),
                (("jsFunctions", "placeholderMessages", "html", "initialHeight", "css"), 23),
                (
                    (
                        "initialHeight",
                        "placeholderMessages",
                        "css",
                        "html",
                        "jsFunctions",
                        "jsExpressions",
                    ),
                    1,
                ),
                (
                    (
                        "initialHeight",
                        "placeholderMessages",
                        "css",
                        "html",
                        "jsFunctions",
                        "jsExpressions",
                    ),
                    7,
                ),
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
    "page-unknown-keys": page(
        {"title": "t", "html": "x", "meta": {"css": "no", "html": ["no"]}, "list": [1, [2]]}, 6
    ),
    "page-empty": [*page("{}"), *say("nothing", "m-n")],
    "page-no-arguments": [*page(""), *say("nothing", "m-n")],
    "page-types": page(
        {
            "initialHeight": "tall",
            "css": None,
            "html": 5,
            "jsFunctions": ["a"],
            "jsExpressions": "f()",
            "other": {"html": "no"},
        }
    ),
    "page-unknown-only": page({"title": "t"}),
    "page-nested-first": page(
        {"meta": {"html": "no", "a": [{"css": "no"}]}, "css": "p{}", "html": "<p>"}, 6
    ),
    "page-escapes-1": page(
        '{"html":"<p class=\\"a\\">\\u4e16\\ud83d\\ude00\\/\\n\\t\\\\</p>","css":' + ESCAPED + "}",
        1,
    ),
    "page-escapes-3": page(
        '{"html":"<p class=\\"a\\">\\u4e16\\ud83d\\ude00\\/\\n\\t\\\\</p>","css":' + ESCAPED + "}",
        3,
    ),
    "page-unicode": page({"css": "\u00e9", "html": HARD * 3}, 5),
    "page-huge": page({"css": "p{}", "html": "<p>0123456789</p>" * 300}, 50),
    "page-two-interleaved": [
        *interleave(page(PAGE, 30, "g1")[:-1], page({**PAGE, "initialHeight": 5}, 41, "g2")[:-1]),
        end("g2"),
        end("g1"),
    ],
    "page-two": [*page(PAGE, 60, "g1"), *page({"html": "<b>2</b>"}, 9, "g2")],
    "page-with-surface": [
        *interleave(page(PAGE, 50)[:-1], draw("r1", surface(), 40)[:-1]),
        end("g1"),
        end("r1"),
    ],
    "page-text-inside": [*page(PAGE, 60)[:3], *say("meanwhile", "m-i"), *page(PAGE, 60)[3:]],
    "page-held-text": [
        begin("g1", "generateSandboxedUi"),
        *say("meanwhile", "m-i"),
        *args("g1", PAGE, 60),
        end("g1"),
    ],
    "page-noise": [*interleave(page(PAGE, 40)[:-1], NOISE), end("g1")],
    "page-chunks": [
        chunk(toolCallId="g1", toolCallName="generateSandboxedUi", delta=write(PAGE)[:70]),
        chunk(delta=write(PAGE)[70:]),
    ],
    "page-no-end": page(PAGE, 60)[:-1],
    "page-cut": page(write(PAGE)[:90], 20),
    "page-error-late": [*page(PAGE, 60), FAILED],
    "page-result": [*page(PAGE, 60), result("g1", {"ok": True}), *say("shown", "m-s")],
    "page-other-tool": [*call("t1", "dash", "{}"), *page({"html": "<p>"}, 4), result("t1", "ok")],
    "page-types-list": page(
        {"placeholderMessages": "text", "jsExpressions": {"a": 1}, "html": "x"}, 7
    ),
    "page-types-items": page(
        {"placeholderMessages": [1, None, ["x"], {"a": "b"}, "ok"], "html": "x"}, 7
    ),
    "page-types-html": page({"css": "p{}", "html": ["<p>", "</p>"]}, 7),
    "page-pretty": page(json.dumps(PAGE, indent=2), 25),
}
