"""What an MCP server answered, as the value of an action."""

from collections.abc import Sequence
from typing import Any

from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject


def parse_tool_result(result: CallToolResult) -> Any:
    """Return what a tool gave. Raises `CopilotError` with its words if it failed.

    A text is a text, and several things are `{"content": [...]}` in MCP's own form, of which
    adapters show models the pictures. Structured content counts where no single text says it.
    """
    content = [_encode_block(block) for block in result.content]
    if result.is_error:
        words = "\n".join(block["text"] for block in content if block["type"] == "text")
        raise CopilotError(words or "The tool failed and did not say why.")
    if any(block["type"] != "text" for block in content):
        return {"content": content}
    if result.structured_content is not None and len(content) != 1:
        return result.structured_content
    return "\n".join(block["text"] for block in content)


def parse_resource(result: ReadResourceResult) -> Any:
    """Return what stands in a resource."""
    return _join_content([_encode_resource(contents) for contents in result.contents])


def parse_prompt(result: GetPromptResult) -> Any:
    """Return the messages of a prompt."""
    return [
        {"role": message.role, "content": _join_content([_encode_block(message.content)])}
        for message in result.messages
    ]


def _join_content(content: Sequence[JsonObject]) -> Any:
    if all(block["type"] == "text" for block in content):
        return "\n".join(block["text"] for block in content)
    return {"content": [*content]}


def _encode_block(block: ContentBlock) -> JsonObject:
    match block:
        case TextContent(text=text):
            return {"type": "text", "text": text}
        case EmbeddedResource(resource=resource):
            return _encode_resource(resource)
        case _:
            return _dump(block)


def _encode_resource(contents: TextResourceContents | BlobResourceContents) -> JsonObject:
    match contents:
        case TextResourceContents(text=text):
            return {"type": "text", "text": text}
        case BlobResourceContents(blob=data, mime_type=str(kind)) if kind.startswith("image/"):
            return {"type": "image", "data": data, "mimeType": kind}
        case _:
            return {"type": "resource", "resource": _dump(contents)}


def _dump(value: Any) -> JsonObject:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
