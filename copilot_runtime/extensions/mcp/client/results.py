"""Results of an MCP server, read item by item: a malformed one costs none of its neighbours.

The package `mcp` validates a result as a whole, so one malformed tool would hide all others.
`ItemwiseDispatcher` gives it an empty result, with the server's own beside it, for `read_result`.
"""

import binascii
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import orjson
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Implementation,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    Result,
    ServerCapabilities,
    TextContent,
    TextResourceContents,
    Tool,
)
from pydantic import BaseModel, Field, ValidationError

from copilot_runtime.base.jsonvalue import JsonObject, as_object, to_text
from copilot_runtime.extensions.mcp.client.messages import TOO_DEEP, LargeResults

Report = Callable[[str, bool], None]
"""Called with a sentence that says what is malformed, and whether an item is left out for it."""

M = TypeVar("M", bound=BaseModel)

_MAX_SCHEMA = 64 * 1024
_ASIDE = "copilot_runtime/result"
_ITEMS = 2_000
"""Number of items that are read of a result: each takes 30 µs."""
_CALL = "tools/call"


class SetAside(Result):
    """An empty result that the package has validated, with the one that the server sent."""

    result: JsonObject = Field(alias=_ASIDE)


class ItemwiseDispatcher(JSONRPCDispatcher[TransportContext]):
    """Sets results aside that `read_result` reads, before the package validates them.

    `report` is called with the method of a malformed result, and then as `read_result` does.
    """

    def __init__(
        self,
        read: Any,
        write: Any,
        large_results: LargeResults,
        report: Callable[[str, str, bool], None],
    ) -> None:
        super().__init__(read, write)
        self._large_results = large_results
        self._report = report

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Send a request and return its result, as a `SetAside` for a method of `RESULTS`."""
        reply = await super().send_raw_request(method, params, opts, **options)
        result = self._large_results.restore(reply)
        if method == "initialize":
            return _repair_handshake(result, partial(self._report, method))
        kind = RESULTS.get(method)
        if kind is None or result.get("resultType") not in (None, "complete"):
            return result
        # the newest version of the protocol requires these fields
        cache = {"ttlMs": 0, "cacheScope": "private"}
        return {"resultType": "complete", **cache, kind.items: [], _ASIDE: result}


def _repair_handshake(result: JsonObject, report: Report) -> JsonObject:
    """Return the result of `initialize` without what is malformed in it.

    A server that does not say what it is capable of may have tools.
    """
    fields = {name: value for name, value in result.items() if value is not None}
    sent = fields.get("capabilities")
    offered: JsonObject = sent if isinstance(sent, dict) else {"tools": {}}
    # some servers write true, and those in PHP an empty list, for an empty object
    capabilities = {name: {} if one in (True, []) else one for name, one in offered.items()}
    info = {"name": "", "version": "", **as_object(fields.get("serverInfo"))}
    try:
        described = _parse(Implementation, info, "the description of the server", report)
    except _Malformed as error:
        report(f"{error.what} is left out: {error.reason}", True)
        described = Implementation(name="", version="")
    supported = _parse(ServerCapabilities, capabilities, "the list of capabilities", report)
    if not isinstance(fields.get("instructions", ""), str):
        report("its instructions are left out: they are no text", True)
        del fields["instructions"]
    return {
        **fields,
        "capabilities": supported.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "serverInfo": described.model_dump(mode="json", by_alias=True, exclude_unset=True),
    }


def read_result(method: str, result: JsonObject, report: Report) -> Result:
    """Return the result of a method of `RESULTS` without what is malformed in it.

    An item is left out, or loses the optional fields that are malformed. In the result of a tool,
    a sentence takes the place of a block, unless there is structured content. Raises `RuntimeError`
    for a list that is missing, and `_Malformed` for a result that cannot be used at all.
    """
    kind = RESULTS[method]
    fields = {name: value for name, value in result.items() if value is not None}
    if method == _CALL and "content" not in fields and "toolResult" in fields:
        # the form of MCP 2024-10-07
        first = fields.pop("toolResult")
        fields["content"] = as_object(first).get("content", to_text(first))
    items = fields.get(kind.items, [] if method == _CALL else None)
    if items is None:
        raise RuntimeError(f"The result of {method} has no {kind.items}.")
    fills_gaps = method == _CALL and "structuredContent" not in fields
    fields[kind.items] = parsed = list[Any]()
    items = items if isinstance(items, list) else [items]
    for number, item in enumerate(items[:_ITEMS], 1):
        try:
            parsed += kind.read(item, number, report)
        except _Malformed as error:
            report(f"{error.what} is left out: {error.reason}", True)
            if fills_gaps:
                text = f"[Here {error.what} was left out: {error.reason}]"
                parsed.append(TextContent(type="text", text=text))
    if len(items) > _ITEMS:
        excess = f"of its {len(items):,} {kind.items}, the first {_ITEMS:,} are read"
        report(excess, True)
        if fills_gaps:
            parsed.append(TextContent(type="text", text=f"[Incomplete: {excess}]"))
    return _parse(kind.result, fields, f"the result of {method}", report)


class _Malformed(RuntimeError):
    """A part of a result that cannot be used: what it is, and why."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


def _parse(model: type[M], value: Any, what: str, report: Report) -> M:
    """Return a value without its optional fields that are malformed.

    Raises `_Malformed` if it is no object, or a required field is missing or malformed.
    """
    if not isinstance(value, dict):
        raise _Malformed(what, "it is no object")
    fields: JsonObject = {**value}
    required = {field.alias for field in model.model_fields.values() if field.is_required()}
    while True:
        try:
            return model.model_validate(fields, by_name=False)
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details:
            path = [*map(str, detail["loc"])]
            reason = f"{'.'.join(path)}: {detail['msg']}"
            if path[0] in required:
                raise _Malformed(what, reason)
            if removed := _remove(fields, path):
                report(f"{what} is used without {removed} ({reason})", False)


def _remove(fields: JsonObject, path: Sequence[str]) -> str:
    """Remove a member of an object in `fields`, or else the whole field; return its path."""
    name, *rest = path
    inner = fields.get(name)
    if rest and isinstance(inner, dict) and rest[0] in inner:
        fields[name] = {key: value for key, value in inner.items() if key != rest[0]}
        return f"{name}.{rest[0]}"
    return "" if fields.pop(name, None) is None else name


def _read_entry(
    model: type[BaseModel], noun: str, item: Any, number: int, report: Report
) -> Sequence[BaseModel]:
    fields = as_object(item)
    name = fields.get("name", fields.get("uri"))
    what = f"the {noun} {name!r:.100}" if isinstance(name, str) else f"the {noun} no. {number}"
    return [_parse(model, item, what, report)]


def _read_tool(item: Any, number: int, report: Report) -> Sequence[BaseModel]:
    tools = _read_entry(Tool, "tool", item, number, report)
    if reason := _find_fault(as_object(item)):
        raise _Malformed(f"the tool {item['name']!r:.100}", reason)
    return tools


def _find_fault(tool: JsonObject) -> str:
    """Return why a tool cannot be called or sent to a model; an empty string if it can."""
    if "\ufffd" in tool["name"]:
        return "its name is not UTF-8"
    try:
        schema = orjson.dumps(tool["inputSchema"])
    except TypeError:
        return "its schema has an integer of more than 64 bits"
    if TOO_DEEP.encode() in schema:
        return "its schema is nested too deeply"
    return "its schema is too large" if len(schema) > _MAX_SCHEMA else ""


def _read_contents(item: Any, number: int, report: Report) -> Sequence[BaseModel]:
    model = BlobResourceContents if "blob" in as_object(item) else TextResourceContents
    return [_parse(model, item, f"part {number} of a resource", report)]


def _read_messages(item: Any, number: int, report: Report) -> Sequence[BaseModel]:
    """Return a message for each block of a content, of which MCP has only one in each message."""
    fields = as_object(item)
    content = fields.get("content")
    blocks = [
        _read_block(block, report)
        for block in (content if isinstance(content, list) else [content])
    ]
    what = f"message {number} of a prompt"
    return [_parse(PromptMessage, {**fields, "content": one}, what, report) for one in blocks]


def _read_content(item: Any, _: int, report: Report) -> Sequence[BaseModel]:
    return [_read_block(item, report)]


_BLOCKS: Mapping[str, type[ContentBlock]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource": EmbeddedResource,
    "resource_link": ResourceLink,
}


def _read_block(block: Any, report: Report) -> ContentBlock:
    """Return a block of content; a string is a text."""
    if isinstance(block, str):
        return TextContent(type="text", text=block)
    fields = as_object(block)
    kind = fields.get("type")
    what = f"a block of the type {kind!r:.100}"
    if not isinstance(kind, str) or kind not in _BLOCKS:
        raise _Malformed(what, "MCP has no such block")
    parsed = _parse(_BLOCKS[kind], fields, what, report)
    match parsed:
        case ImageContent() | AudioContent():
            parsed.data = _clean_base64(parsed.data, what)
        case EmbeddedResource(resource=BlobResourceContents() as file):
            file.blob = _clean_base64(file.blob, what)
        case _:
            pass
    return parsed


def _clean_base64(data: str, what: str) -> str:
    """Return data without line breaks and without the head of a `data:` URL.

    Raises `_Malformed` for data with which a provider of models would refuse the whole request.
    """
    data = "".join(data.rpartition(";base64,")[2].split())
    try:
        is_empty = not binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise _Malformed(what, f"its data is not base64 ({error})") from None
    if is_empty:
        raise _Malformed(what, "its data is empty")
    return data


class _Kind(NamedTuple):
    """A result with items: its model, the key of the items, and the reader of one item."""

    result: type[Result]
    items: str
    read: Callable[[Any, int, Report], Sequence[BaseModel]]


RESULTS: Mapping[str, _Kind] = {
    "tools/list": _Kind(ListToolsResult, "tools", _read_tool),
    _CALL: _Kind(CallToolResult, "content", _read_content),
    "resources/list": _Kind(
        ListResourcesResult, "resources", partial(_read_entry, Resource, "resource")
    ),
    "resources/templates/list": _Kind(
        ListResourceTemplatesResult,
        "resourceTemplates",
        partial(_read_entry, ResourceTemplate, "resource template"),
    ),
    "resources/read": _Kind(ReadResourceResult, "contents", _read_contents),
    "prompts/list": _Kind(ListPromptsResult, "prompts", partial(_read_entry, Prompt, "prompt")),
    "prompts/get": _Kind(GetPromptResult, "messages", _read_messages),
}
"""The results that are read item by item, by the method that was called."""
