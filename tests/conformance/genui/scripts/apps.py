"""Agents that call tools of MCP servers with user interfaces."""

from collections.abc import Mapping

from tests.conformance.genui.scripts.events import (
    ASK,
    FAILED,
    HARD,
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
)

APPS: Mapping[str, list[Event]] = {
    **{
        f"app-{name}": call("c1", name, {"a": 1})
        for name in (
            "image",
            "image_and_text",
            "structured",
            "structured_error",
            "empty",
            "empty_text",
            "linked",
            "embedded",
            "audio",
            "with_meta",
            "only_meta",
            "unknown_part",
            "annotated",
            "echo",
            "no_content",
            "many_texts",
            "model_only",
            "both",
            "for_nobody",
            "null_visibility",
            "text_visibility",
            "both_keys",
            "number_uri",
            "legacy",
            "wide_schema",
            "untold",
            "page_2_tool",
        )
    },
    "app-echo-unicode": call("c1", "echo", {"t": HARD}, 9),
    "app-echo-empty": [begin("c1", "echo"), end("c1")],
    "app-echo-list": call("c1", "echo", [1]),
    "app-echo-text": call("c1", "echo", '"x"'),
    "app-parallel": [
        *interleave(
            [begin("c1", "echo"), *args("c1", {"a": 1}, 3)],
            [begin("c2", "echo"), *args("c2", {"b": 2}, 3)],
        ),
        end("c2"),
        end("c1"),
    ],
    "app-one-answered": [
        *call("c1", "echo", {"a": 1}),
        *call("c2", "echo", {"b": 2}),
        result("c1", "mine"),
    ],
    "app-two-failing": [*call("c1", "hard_error", {}), *call("c2", "echo", {"b": 2})],
    "app-with-surface": [*call("c1", "echo", {"a": 1}), *draw("r1", surface(), 60)],
    "app-with-page": [*call("c1", "echo", {"a": 1}), *page(PAGE, 60)],
    "app-and-page-tool": [
        *call("c1", "echo", {"a": 1}),
        *call("w1", "getWeather", {"city": "Oslo"}),
    ],
    "app-parent": [
        *say("look", "m-p"),
        begin("c1", "echo", parentMessageId="m-p"),
        *args("c1", {}),
        end("c1"),
        *say("after", "m-q"),
    ],
    "app-chunks": [chunk(toolCallId="c1", toolCallName="echo", delta='{"a"'), chunk(delta=":1}")],
    "app-no-end": [begin("c1", "echo"), *args("c1", {"a": 1})],
    "app-surface-result": call("c1", "surface", {}),
    "app-error-after": [*call("c1", "echo", {}), FAILED],
    "app-interrupt": [
        *call("c1", "echo", {}),
        {
            "type": "RUN_FINISHED",
            "outcome": {"type": "interrupt", "interrupts": [{**ASK, "toolCallId": "c1"}]},
        },
    ],
    "app-weather": call("c1", "show_weather", {"city": "Oslo"}),
}
