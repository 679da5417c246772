"""What a tool answers, in each of the forms that MCP has for it."""

from typing import Any

import pytest
from mcp_types import CallToolResult, ReadResourceResult

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.mcp.client.tools import parse_resource, parse_tool_result
from tests.in_one_test import in_one_test


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a.txt", "name": "a"}


def embedded(**contents: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///a", **contents}}


@in_one_test(
    ("content", "structured", "value"),
    [
        ([], None, ""),
        ([text("Hi")], None, "Hi"),
        ([text("a"), text("b")], None, "a\nb"),
        ([text('{"a": 1}')], {"a": 1}, '{"a": 1}'),
        ([], {"a": 1}, {"a": 1}),
        ([text("1"), text("2")], {"result": [1, 2]}, {"result": [1, 2]}),
        ([], 0, 0),
        ([text("A map:"), IMAGE], {"a": 1}, {"content": [text("A map:"), IMAGE]}),
        ([AUDIO], None, {"content": [AUDIO]}),
        ([LINK], None, {"content": [LINK]}),
        ([embedded(text="Inside.")], None, "Inside."),
        ([embedded(blob="aGk=", mimeType="image/png")], None, {"content": [IMAGE]}),
        (
            [embedded(blob="aGk=", mimeType="application/pdf")],
            None,
            {"content": [embedded(blob="aGk=", mimeType="application/pdf")]},
        ),
    ],
)
def test_content_becomes_a_value(content: Any, structured: Any, value: Any) -> None:
    result = CallToolResult.model_validate({"content": content, "structuredContent": structured})

    assert parse_tool_result(result) == value


@in_one_test(
    ("content", "words"),
    [([text("No."), IMAGE, text("Never.")], "No.\nNever."), ([], "did not say why")],
)
def test_a_failure_has_the_text_of_the_tool(content: Any, words: str) -> None:
    result = CallToolResult.model_validate({"content": content, "isError": True})

    with pytest.raises(CopilotError, match=words):
        parse_tool_result(result)


def test_a_resource_of_several_parts_is_their_content() -> None:
    parts = [{"uri": "a:", "text": "Look:"}, {"uri": "a:", "blob": "aGk=", "mimeType": "image/png"}]

    result = ReadResourceResult.model_validate({"contents": parts})

    assert parse_resource(result) == {"content": [text("Look:"), IMAGE]}
