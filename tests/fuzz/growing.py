"""Each kind of input that a client or an agent can send, as large as one asks for."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from copilot_runtime.extensions.generative_ui.a2ui.catalog import CATALOG_CONTEXT
from tests.fuzz.http import PARTS
from tests.wire.client import CHAT, PLAIN, chat, user

Build = Callable[[int], bytes]
"""Returns an input of about so many bytes."""

JSON = "application/json"
RUN = {
    "threadId": "t",
    "runId": "r",
    "state": {},
    "messages": [{"id": "u", "role": "user", "content": "Hi."}],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}


def fill(head: str, item: str, tail: str = "", between: str = ",") -> Build:
    """Repeat an item between a head and a tail. `#` in it is its number."""

    def build(size: int) -> bytes:
        count = max(1, size // (len(item) + len(between)))
        items = (
            (item.replace("#", str(at)) for at in range(count)) if "#" in item else [item] * count
        )
        return f"{head}{between.join(items)}{tail}".encode()

    return build


def nest(head: str, opening: str, closing: str, tail: str = "") -> Build:
    """Put a value into as many others as the size has room for."""

    def build(size: int) -> bytes:
        depth = max(1, size // (len(opening) + len(closing)))
        return f"{head}{opening * depth}1{closing * depth}{tail}".encode()

    return build


def run_with(field: str, build: Callable[[str, str], Build]) -> Build:
    """Return a run whose field is filled by `build`, a function of what is around it."""
    return build(f'{json.dumps(RUN)[:-1]}, "{field}": ', "}")


def run_list(field: str, item: str) -> Build:
    return run_with(field, lambda head, tail: fill(f"{head}[", item, f"]{tail}"))


def run_text(before: str, item: str, after: str) -> Build:
    """Return a run whose one message has a long text in it."""
    return run_with(
        "messages", lambda head, tail: fill(f"{head}[{before}", item, f"{after}]{tail}", "")
    )


def say_text(item: str) -> Build:
    return run_text('{"id": "u", "role": "user", "content": "', item, '"}')


def in_text(build: Build, around: Callable[[str], Any]) -> Build:
    """Put what is built into JSON as a text."""

    def build_text(size: int) -> bytes:
        return json.dumps(around(build(size).decode())).encode()

    return build_text


def ask_graphql(build: Build) -> Build:
    return in_text(build, lambda text: {"query": text})


def ask_v1(build: Build, **fields: Callable[[str], Any]) -> Build:
    return in_text(
        build, lambda text: chat(user(), **{name: of(text) for name, of in fields.items()})
    )


def call_mcp(build: Build) -> Build:
    params = {"name": "look", "arguments": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    def build_call(size: int) -> bytes:
        return json.dumps(call)[:-4].encode() + build(size) + b"}}"

    return build_call


DEEP = nest('{"a": ', '{"a": [', "]}", "}")
PATHS = fill('{"', '#": 1, "', 'a": 1}', "")
TOOL = '{"name": "t#", "description": "d", "parameters": {"type": "object", "properties": {}}}'
CALL = '{"id": "c#", "type": "function", "function": {"name": "look", "arguments": "{}"}}'
ASSISTANT = '{"id": "a", "role": "assistant", "content": "", "toolCalls": ['
CLICK = '{"a2uiAction": {"userAction": {"name": "go", "surfaceId": "s", "context": {"a": ['

RUN_PATH = "/graphql/agent/default/run"
RUNS: Mapping[str, Build] = {
    "JSON of backslashes": fill('"', r"\\", '"', ""),
    "JSON of backslashes without an end": fill('"', "\\", "", ""),
    "JSON of escapes": fill('"', r"\u0041", '"', ""),
    "JSON of halves of characters": fill('"', r"\ud83d x", '"', ""),
    "JSON of digits": fill("", "9", "", ""),
    "JSON of numbers": fill("[", "1e5", "]"),
    "JSON of keys": fill("{", '"k#": 1', "}"),
    "JSON of brackets": fill("", "[", "", ""),
    "JSON of levels": DEEP,
    "JSON that is not UTF-8": lambda size: b'"' + b"\xff" * size + b'"',
    "JSON of blanks": lambda size: b" " * size + json.dumps(RUN).encode(),
    "messages": run_list("messages", '{"id": "#", "role": "user", "content": "a"}'),
    "one id of all messages": run_list("messages", '{"id": "u", "role": "user", "content": "a"}'),
    "a long message": say_text("word "),
    "a message of backslashes": say_text(r"\\"),
    "a message of lines": say_text(r"\n"),
    "a message of brackets": say_text("[{(<"),
    "a message of halves of characters": say_text(r"\ud83d x"),
    "a message of combining marks": say_text(r"\u0301"),
    "a message of addresses": say_text("https://a.example/?b "),
    "parts of a message": run_text(
        '{"id": "u", "role": "user", "content": [',
        f"{json.dumps(PARTS[0])},",
        f"{json.dumps(PARTS[0])}]}}",
    ),
    "pictures of a message": run_text(
        '{"id": "u", "role": "user", "content": [',
        f"{json.dumps(PARTS[1])},",
        f"{json.dumps(PARTS[1])}]}}",
    ),
    "a large picture": run_text(
        '{"id": "u", "role": "user", "content": [{"type": "binary", "mimeType": "image/png", '
        '"data": "',
        "AAAA",
        '"}]}',
    ),
    "calls of a message": run_text(ASSISTANT, f"{CALL},", f"{CALL}]}}"),
    "arguments of a call": run_text(
        ASSISTANT + '{"id": "c", "type": "function", "function": {"name": "look", "arguments": '
        r'"{\"a\": \"',
        r"\\\\",
        r'\"}"}}]}',
    ),
    "tools": run_list("tools", TOOL),
    "a schema of many properties": run_with(
        "tools",
        lambda head, tail: fill(
            f'{head}[{{"name": "t", "description": "", "parameters": {{"properties": {{',
            '"p#": {"type": "string"}',
            f"}}}}}}]{tail}",
        ),
    ),
    "a schema of many levels": run_with(
        "tools",
        lambda head, tail: nest(
            f'{head}[{{"name": "t", "description": "", "parameters": ',
            '{"properties": {"a": ',
            "}}",
            f"}}]{tail}",
        ),
    ),
    "items of context": run_list("context", '{"description": "d#", "value": "v"}'),
    "a catalog of components": in_text(
        fill('{"catalogId": "c", "components": {', '"C#": {"type": "object"}', "}}"),
        lambda text: {
            **RUN,
            "context": [{"description": CATALOG_CONTEXT, "value": text}],
            "forwardedProps": {"a2uiCatalogAvailable": True},
        },
    ),
    "a click in a surface": run_with(
        "forwardedProps", lambda head, tail: fill(head + CLICK, "1", f"]}}}}}}}}{tail}")
    ),
    "a state of keys": run_with(
        "state", lambda head, tail: fill(f"{head}{{", '"k#": 1', f"}}{tail}")
    ),
    "a state of levels": run_with("state", lambda head, tail: nest(head, '{"a": [', "]}", tail)),
    "a state of text": run_with(
        "state", lambda head, tail: fill(f'{head}{{"a": "', r"\\", f'"}}{tail}', "")
    ),
    "properties": run_with(
        "forwardedProps", lambda head, tail: fill(f"{head}{{", '"k#": 1', f"}}{tail}")
    ),
    "answers to questions": run_list(
        "resume", '{"interruptId": "i#", "status": "resolved", "payload": 1}'
    ),
}
REQUESTS: Mapping[str, tuple[str, str, Build]] = {
    **{kind: (RUN_PATH, JSON, build) for kind, build in RUNS.items()},
    "a URL-encoded form": (
        "/graphql",
        "application/x-www-form-urlencoded",
        fill("query=", "%41", "", ""),
    ),
    "a form of many fields": (
        "/graphql",
        "application/x-www-form-urlencoded",
        fill("", "a#=b", "", "&"),
    ),
    "fields of GraphQL": ("/graphql", JSON, ask_graphql(fill("{", " hello", "}", ""))),
    "aliases of GraphQL": ("/graphql", JSON, ask_graphql(fill("{", " a#: hello", "}", ""))),
    "fragments of GraphQL": (
        *("/graphql", JSON),
        ask_graphql(fill("{ hello }", " fragment F# on Query { hello }", "", "")),
    ),
    "levels of GraphQL": ("/graphql", JSON, ask_graphql(nest("{ ", "a { ", " }", " }"))),
    "comments of GraphQL": ("/graphql", JSON, ask_graphql(fill("{ hello }", "#\n", "", ""))),
    "texts of GraphQL": ("/graphql", JSON, ask_graphql(fill('{ hello(a: "', r"\\", '") }', ""))),
    "blocks of GraphQL": (
        "/graphql",
        JSON,
        ask_graphql(fill('{ hello(a: """', ' "\n', '""") }', "")),
    ),
    "directives of GraphQL": ("/graphql", JSON, ask_graphql(fill("{ hello ", "@a ", "}", ""))),
    "variables of GraphQL": (
        *("/graphql", JSON),
        fill(f'{{"query": {json.dumps(PLAIN)}, "variables": {{', '"v#": 1', "}}"),
    ),
    "variables of levels": (
        *("/graphql", JSON),
        nest(f'{{"query": {json.dumps(CHAT)}, "variables": {{"data": ', '{"a": [', "]}", "}}"),
    ),
    "states of v1": (
        *("/graphql", JSON),
        ask_v1(PATHS, agentStates=lambda text: [{"agentName": "helper", "state": text}]),
    ),
    "a state of v1 of backslashes": (
        *("/graphql", JSON),
        ask_v1(
            fill('{"a": "', r"\\", '"}', ""),
            agentStates=lambda text: [{"agentName": "helper", "state": text}],
        ),
    ),
    "a context of v1": (
        *("/graphql", JSON),
        ask_v1(
            fill("", "word ", "", ""), context=lambda text: [{"description": "", "value": text}]
        ),
    ),
    "a batch of MCP": (
        *("/graphql/mcp", JSON),
        fill("[", '{"jsonrpc": "2.0", "id": #, "method": "ping"}', "]"),
    ),
    "arguments of MCP": ("/graphql/mcp", JSON, call_mcp(fill("{", '"k#": 1', "}"))),
    "levels of MCP": ("/graphql/mcp", JSON, call_mcp(DEEP)),
    "text of MCP": ("/graphql/mcp", JSON, call_mcp(fill('{"at": "', r"\\", '"}', ""))),
    "an action": (
        *("/graphql/actions/execute", JSON),
        fill('{"name": "look", "arguments": {"at": "', r"\\", '"}}', ""),
    ),
    "an annotation": ("/graphql/annotate", JSON, fill("{", '"k#": 1', "}")),
    "feedback": (
        *("/graphql/traces/feedback", JSON),
        fill('{"run_id": "r", "rating": "up", "comment": "', r"\\", '"}', ""),
    ),
    "an event": ("/graphql/events", JSON, fill('{"type": "a", "payload": {', '"k#": 1', "}}")),
    "a message of A2A": (
        *("/graphql/a2a/default", JSON),
        fill(
            '{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": '
            '{"messageId": "m", "role": "ROLE_USER", "parts": [',
            '{"text": "a"}',
            "]}}}",
        ),
    ),
    "spans that are received": (
        *("/v1/traces", JSON),
        fill('{"resourceSpans": [{"scopeSpans": [{"spans": [', '{"name": "a#"}', "]}]}]}"),
    ),
    "a recording": (
        *("/graphql/transcribe", "multipart/form-data; boundary=b"),
        fill(
            '--b\r\nContent-Disposition: form-data; name="audio"; filename="a.wav"\r\n'
            "Content-Type: audio/wav\r\n\r\n",
            "\r\n--",
            "\r\n--b--\r\n",
            "",
        ),
    ),
    "parts of a form": (
        *("/graphql/transcribe", "multipart/form-data; boundary=b"),
        fill("", '--b\r\nContent-Disposition: form-data; name="a#"\r\n\r\nx\r\n', "--b--\r\n", ""),
    ),
    "headers of a part": (
        *("/graphql/transcribe", "multipart/form-data; boundary=b"),
        fill("--b\r\n", "X-#: a\r\n", "\r\nx\r\n--b--\r\n", ""),
    ),
    "an upload of rows": (
        "/graphql/knowledge/files?threadId=t&name=a.csv",
        "text/csv",
        fill("a,b\n", "#,x\n", "", ""),
    ),
    "an upload of cells": (
        "/graphql/knowledge/files?threadId=t&name=b.csv",
        "text/csv",
        fill("", "x", "\n"),
    ),
    "an upload of text": (
        "/graphql/knowledge/files?threadId=t&name=a.txt",
        "text/plain",
        fill("", "word ", "", ""),
    ),
    "an upload of Markdown": (
        *("/graphql/knowledge/files?threadId=t&name=a.md", "text/markdown"),
        fill("", "# a [b](c) **d\n", "", ""),
    ),
    "an upload of levels of Markdown": (
        *("/graphql/knowledge/files?threadId=t&name=b.md", "text/markdown"),
        fill("", ">", "", ""),
    ),
    "an upload of HTML": (
        *("/graphql/knowledge/files?threadId=t&name=a.html", "text/html"),
        fill("<!doctype html>", "<div>a", "", ""),
    ),
    "an upload of JSON": (
        *("/graphql/knowledge/files?threadId=t&name=a.json", JSON),
        fill("[", '{"a": #}', "]"),
    ),
    "a name of a thread": ("/graphql/threads/t", JSON, fill('{"name": "', r"\\", '"}', "")),
}
