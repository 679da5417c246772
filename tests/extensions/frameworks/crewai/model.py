"""The model of the crew in `examples/crew`, with OpenAI's API, on loopback."""

import json
from collections.abc import Collection, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

Json = dict[str, Any]


class Model(BaseHTTPRequestHandler):
    """What a person writes decides what it says or calls."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tools = {tool["function"]["name"] for tool in body.get("tools", ())}
        message = choose(body["messages"], tools)
        head = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._send("application/json", {**head, "choices": [choice]})
            return
        choices = ({"delta": message}, {"delta": {}, "finish_reason": reason})
        chunks = [{**head, "choices": [{"index": 0, **choice}]} for choice in choices]
        self._send("text/event-stream", *chunks)

    def _send(self, content_type: str, *payloads: Json) -> None:
        texts = [json.dumps(payload) for payload in payloads]
        if content_type == "text/event-stream":
            texts = [f"data: {text}\n\n" for text in (*texts, "[DONE]")]
        body = "".join(texts).encode()
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def choose(messages: Sequence[Mapping[str, Any]], tools: Collection[str]) -> Json:
    last = messages[-1]
    if not tools:  # the agent of the crew, and what describes the crew at first
        return _text("Thought: I know.\nFinal Answer: Cats sleep a lot.")
    if last["role"] == "tool":
        return _text(f"I hear: {last['content']}")
    wanted = [name for name in tools if name in str(last["content"])]
    return _call(wanted[0], {}) if wanted else _call("Research", {"topic": "cats"})


def _text(content: str) -> Json:
    return {"role": "assistant", "content": content}


def _call(name: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call-{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}
