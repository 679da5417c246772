"""An answer of many short texts in each provider's bytes, as its documentation shows them."""

import json
from collections.abc import Callable, Iterator, Mapping
from struct import pack
from typing import Any
from zlib import crc32

WORD = " token"
"""The text of each chunk."""

Shape = Callable[[int], Iterator[bytes]]
"""Yields the frames of an answer with that many chunks of text."""


def openai(chunks: int) -> Iterator[bytes]:
    def chunk(delta: Any, finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _sse(
            {
                "id": "chatcmpl-BGcR7Yk2nQ4vXw",
                "object": "chat.completion.chunk",
                "created": 1763700000,
                "model": "gpt-4o-2024-08-06",
                "service_tier": "default",
                "system_fingerprint": "fp_44709d6fcb",
                "choices": [choice],
                "usage": None,
                "obfuscation": "aB3dE5fG",
                **more,
            }
        )

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for _ in range(chunks):
        yield chunk({"content": WORD})
    yield chunk({}, "stop")
    counts = {"prompt_tokens": 9, "completion_tokens": chunks, "total_tokens": chunks + 9}
    yield chunk({}, choices=[], usage=counts)
    yield b"data: [DONE]\n\n"


def openai_responses(chunks: int) -> Iterator[bytes]:
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1763700000,
        "status": "in_progress",
        "model": "gpt-5",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}

    def event(type: str, number: int, **more: Any) -> bytes:
        return _sse({"type": type, "sequence_number": number, **more}, type)

    yield event("response.created", 0, response=response)
    yield event("response.in_progress", 1, response=response)
    yield event("response.output_item.added", 2, output_index=0, item={**item, "content": []})
    yield event("response.content_part.added", 3, **place, part=part)
    for number in range(chunks):
        more = {**place, "delta": WORD, "logprobs": [], "obfuscation": "aB3dE5fG"}
        yield event("response.output_text.delta", 4 + number, **more)
    text = WORD * chunks
    whole = {**part, "text": text}
    last = 4 + chunks
    yield event("response.output_text.done", last, **place, text=text, logprobs=[])
    yield event("response.content_part.done", last + 1, **place, part=whole)
    done = {**item, "status": "completed", "content": [whole]}
    yield event("response.output_item.done", last + 2, output_index=0, item=done)
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": chunks,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": chunks + 9,
    }
    ended = {**response, "status": "completed", "output": [done], "usage": usage}
    yield event("response.completed", last + 3, response=ended)


def openai_assistants(chunks: int) -> Iterator[bytes]:
    def run(status: str) -> bytes:
        value = {
            "id": "run_1",
            "object": "thread.run",
            "created_at": 1763700000,
            "assistant_id": "asst_1",
            "thread_id": "thread_1",
            "status": status,
            "model": "gpt-4o",
            "instructions": "",
            "tools": [],
            "parallel_tool_calls": True,
            "usage": None,
        }
        return _sse(value, f"thread.run.{status}")

    yield run("in_progress")
    for _ in range(chunks):
        text = {"index": 0, "type": "text", "text": {"value": WORD}}
        value = {"id": "msg_1", "object": "thread.message.delta", "delta": {"content": [text]}}
        yield _sse(value, "thread.message.delta")
    yield run("completed")
    yield b"event: done\ndata: [DONE]\n\n"


def anthropic(chunks: int) -> Iterator[bytes]:
    def event(type: str, **more: Any) -> bytes:
        return _sse({"type": type, **more}, type)

    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    yield event("message_start", message=message)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield event("ping")
    for _ in range(chunks):
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": WORD})
    yield event("content_block_stop", index=0)
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": chunks})
    yield event("message_stop")


def google(chunks: int) -> Iterator[bytes]:
    def chunk(text: str, **more: Any) -> bytes:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **more}
        counts = {
            "promptTokenCount": 9,
            "candidatesTokenCount": 7,
            "totalTokenCount": 16,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 9}],
        }
        value = {
            "candidates": [candidate],
            "usageMetadata": counts,
            "modelVersion": "gemini-2.5-flash",
            "responseId": "aB3dE5fG7hI9",
        }
        return f"data: {json.dumps(value)}\r\n\r\n".encode()

    for _ in range(chunks - 1):
        yield chunk(WORD)
    yield chunk(WORD, finishReason="STOP")


def bedrock(chunks: int) -> Iterator[bytes]:
    yield _amazon("messageStart", {"role": "assistant"})
    for _ in range(chunks):
        delta = {"contentBlockIndex": 0, "delta": {"text": WORD}, "p": "abcdefghijklmnop"}
        yield _amazon("contentBlockDelta", delta)
    yield _amazon("contentBlockStop", {"contentBlockIndex": 0})
    yield _amazon("messageStop", {"stopReason": "end_turn"})
    usage = {"inputTokens": 9, "outputTokens": chunks, "totalTokens": chunks + 9}
    yield _amazon("metadata", {"usage": usage, "metrics": {"latencyMs": 900}})


SHAPES: Mapping[str, Shape] = {
    shape.__name__: shape
    for shape in (openai, openai_responses, openai_assistants, anthropic, google, bedrock)
}


def _sse(value: Any, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _amazon(event: str, value: Any) -> bytes:
    """Return a message of an event stream: lengths, headers, payload, and two checksums."""
    fields = {
        ":event-type": event,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    headers = b"".join(
        pack(">B", len(name)) + name.encode() + pack(">BH", 7, len(text)) + text.encode()
        for name, text in fields.items()
    )
    payload = json.dumps(value, separators=(",", ":")).encode()
    lengths = pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = lengths + pack(">I", crc32(lengths)) + headers + payload
    return message + pack(">I", crc32(message))
