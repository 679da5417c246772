"""What the mock upstream streams: asked for by a marker in the user message, answered in bytes.

The marker travels inside the message, so it survives every runtime that passes messages on
unchanged: `[[perf id=7 n=2000 size=24 delay=50 ttft=0 burst=1 tool=]]`.
"""

import re
from dataclasses import dataclass, replace

TOKEN = re.compile(rb"~(\d{6}):(\d{12})~")
"""Sequence number and send time (microseconds of CLOCK_MONOTONIC) inside every content chunk."""

_TOKEN_FORMAT = b"~%06d:%012d~"
_TOKEN_BYTES = 21
_RUN_ID = re.compile(rb'"(threadId|runId)" *: *"([^"]*)"')
_MARKER = re.compile(rb"\[\[perf ([^\]]*)\]\]")
_FIELD = re.compile(rb"(\w+)=([\w.-]*)")
_SHORT_FOLLOW_UP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One stream: how many chunks, of how many bytes, how many milliseconds apart."""

    stream_id: str
    chunks: int = 20
    size_bytes: int = 24
    delay_ms: float = 0
    first_after_ms: float = 0
    burst: int = 1
    tool: str = ""

    def marker(self) -> str:
        """Return the text that asks the mock for this stream."""
        return (
            f"[[perf id={self.stream_id} n={self.chunks} size={self.size_bytes}"
            f" delay={self.delay_ms} ttft={self.first_after_ms} burst={self.burst}"
            f" tool={self.tool}]]"
        )


def find_script(body: bytes, default_id: str) -> Script:
    """Read the last marker of a request body; without one, twenty chunks of text."""
    markers = _MARKER.findall(body)
    fields = dict(_FIELD.findall(markers[-1])) if markers else {}
    script = Script(
        stream_id=(fields.get(b"id") or default_id.encode()).decode(),
        chunks=int(fields.get(b"n") or 20),
        size_bytes=int(fields.get(b"size") or 24),
        delay_ms=float(fields.get(b"delay") or 0),
        first_after_ms=float(fields.get(b"ttft") or 0),
        burst=int(fields.get(b"burst") or 1),
        tool=fields.get(b"tool", b"").decode(),
    )
    asks_after_tool = b'"role":"tool"' in body or b'"role": "tool"' in body
    if script.tool and asks_after_tool:
        return replace(script, tool="", chunks=min(script.chunks, _SHORT_FOLLOW_UP))
    return script


@dataclass(frozen=True, slots=True)
class StreamBytes:
    """A stream as HTTP chunks: only sequence number and time are left to fill in."""

    start: bytes
    chunk_format: bytes
    end: bytes


def openai_bytes(script: Script) -> StreamBytes:
    """Render a chat completion in server-sent events, as OpenAI writes it."""
    first, content, last = _tool_events(script) if script.tool else _text_events(script)
    return _stream_bytes(script, first, content, last + b"data: [DONE]\n\n")


def agui_bytes(script: Script, body: bytes) -> StreamBytes:
    """Render a run of AG-UI in server-sent events; the ids of the run are those of the request."""
    ids = dict(_RUN_ID.findall(body))
    run = b'"threadId":"%s","runId":"%s"' % (ids.get(b"threadId", b"t"), ids.get(b"runId", b"r"))
    first, content, last = _tool_call(script) if script.tool else _text_message(script)
    started, finished = _agui_event(b"RUN_STARTED", run), _agui_event(b"RUN_FINISHED", run)
    return _stream_bytes(script, started + first, content, last + finished)


def _stream_bytes(script: Script, first: bytes, content: bytes, last: bytes) -> StreamBytes:
    before, after = content.split(b"\0")
    after = b"x" * max(0, script.size_bytes - _TOKEN_BYTES) + after
    length = len(before) + _TOKEN_BYTES + len(after)
    return StreamBytes(
        start=_http_chunk(first),
        chunk_format=b"%x\r\n%s%s%s\r\n"
        % (length, before.replace(b"%", b"%%"), _TOKEN_FORMAT, after),
        end=_http_chunk(last) + b"0\r\n\r\n",
    )


def _text_message(script: Script) -> tuple[bytes, bytes, bytes]:
    message = b'"messageId":"msg-%s"' % script.stream_id.encode()
    return (
        _agui_event(b"TEXT_MESSAGE_START", message + b',"role":"assistant"'),
        _agui_event(b"TEXT_MESSAGE_CONTENT", message + b',"delta":"\0"'),
        _agui_event(b"TEXT_MESSAGE_END", message),
    )


def _tool_call(script: Script) -> tuple[bytes, bytes, bytes]:
    call = b'"toolCallId":"call-%s"' % script.stream_id.encode()
    name = b',"toolCallName":"%s"' % script.tool.encode()
    return (
        _agui_event(b"TOOL_CALL_START", call + name)
        + _agui_event(b"TOOL_CALL_ARGS", call + rb',"delta":"{\"v\":\""'),
        _agui_event(b"TOOL_CALL_ARGS", call + b',"delta":"\0"'),
        _agui_event(b"TOOL_CALL_ARGS", call + rb',"delta":"\"}"')
        + _agui_event(b"TOOL_CALL_END", call),
    )


def _agui_event(kind: bytes, fields: bytes) -> bytes:
    return b'data: {"type":"%s",%s}\n\n' % (kind, fields)


def _text_events(script: Script) -> tuple[bytes, bytes, bytes]:
    return (
        _event(script, b'{"role":"assistant","content":""}'),
        _event(script, b'{"content":"\0"}'),
        _event(script, b"{}", b'"stop"'),
    )


def _tool_events(script: Script) -> tuple[bytes, bytes, bytes]:
    call = b'"id":"call_%s","type":"function",' % script.stream_id.encode()
    name = b'"name":"%s",' % script.tool.encode()
    first = (
        _event(script, b'{"role":"assistant","content":null}')
        + _event(script, _arguments(b"", call, name))
        + _event(script, _arguments(rb"{\"v\":\""))
    )
    last = _event(script, _arguments(rb"\"}")) + _event(script, b"{}", b'"tool_calls"')
    return first, _event(script, _arguments(b"\0")), last


def _arguments(text: bytes, call: bytes = b"", name: bytes = b"") -> bytes:
    return b'{"tool_calls":[{"index":0,%s"function":{%s"arguments":"%s"}}]}' % (call, name, text)


def _event(script: Script, delta: bytes, finish_reason: bytes = b"null") -> bytes:
    return (
        b'data: {"id":"chatcmpl-%s","object":"chat.completion.chunk","created":1700000000,'
        b'"model":"gpt-4o","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}\n\n'
    ) % (script.stream_id.encode(), delta, finish_reason)


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
