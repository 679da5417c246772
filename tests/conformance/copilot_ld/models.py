"""Requests to models: calls in calls, embeddings, addresses, and what is tried again."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from copilot_runtime.adapters.assembly import Assembly
from copilot_runtime.adapters.embeddings.tei import TEIEmbedder
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import ChatRequest, Parameters
from copilot_runtime.api.messages import ActionExecutionMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import CopilotError, NetworkError
from copilot_runtime.extensions.knowledge.vectors.quantized import normalize
from copilot_runtime.http import errors
from copilot_runtime.http.client import Upstream
from tests.conformance.copilot_ld.cases import Case, Verdict

_NETWORK = re.compile(
    r"network|timeout|econnrefused|econnreset|etimedout|unavailable|fetch failed"
    r"|http (429|499|50[0234])",
    re.IGNORECASE,
)
"""Errors that pass by themselves, by their words: ours are told apart by their class."""


async def answer(case: Case) -> Any:
    """Normalise a vector, take calls out of a call, or send requests."""
    if "normalize" in case.feature:
        return [round(float(value), 6) for value in normalize([case.input])[0]]
    if "embeddings" in case.feature:
        return await _send(case)
    calls = case.input if isinstance(case.input, list) else case.input.get("tool_calls") or []
    return _expand(calls)


def _expand(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what an answer with some calls calls."""
    assembly = Assembly(ChatRequest(messages=[]))
    for index, call in enumerate(calls):
        function = call["function"]
        assembly.call(index, call["id"], function["name"], function.get("arguments") or "")
    assembly.end()
    return [
        {
            "id": message.id,
            "type": "function",
            "function": {"name": message.name, "arguments": message.arguments},
        }
        for message in fold_messages(assembly.events)
        if isinstance(message, ActionExecutionMessage)
    ]


class _Tei(TEIEmbedder):
    """Keeps what it sends, and gets the vectors of a case."""

    requests: list[Any]
    vectors: Any

    async def _post(
        self,
        url: str,
        body: Any,
        headers: Mapping[str, str],
        secret: str | None,
        format: str = "embeddings",
    ) -> tuple[Any, Mapping[str, str]]:
        del headers, secret, format
        self.requests.append([url, body])
        return self.vectors, {}


async def _send(case: Case) -> Verdict:
    """Compare where both requests go and what they ask for. Ours ask for a stream."""
    (tei_url, tei_body), (chat_url, chat_body) = case.output["requests"]
    tei = _Tei(tei_url.removesuffix("/embed"), truncate=None)
    tei.requests, tei.vectors = (
        [],
        [item["embedding"] for item in case.output["embeddings"]["data"]],
    )
    vectors = await tei.embed(tei_body["inputs"])
    window = case.input["window"]
    adapter = OpenAIAdapter(
        chat_body["model"], base_url=case.input["base"], api_key="k", max_tokens_name="max_tokens"
    )
    parameters = Parameters(max_tokens=window["max_tokens"], temperature=chat_body["temperature"])
    request = ChatRequest(messages=[], parameters=parameters)
    endpoint = adapter.endpoint(request)
    actual = [*tei.requests, [endpoint.url, {"model": endpoint.model}]]
    holds = tei.requests == [[tei_url, tei_body]] and endpoint.url == chat_url
    return Verdict(holds and vectors.shape == (1, len(tei.vectors[0])), actual)


async def answer_retry(case: Case) -> Any:
    """Send a request that fails as the case says, and measure how often, and after which waits."""
    retry_count = re.search(r"retries=(\d+)", case.feature)
    delay = re.search(r"delay=(\d+)", case.feature)
    steps, attempts, waits = list(case.input), 0, list[float]()
    upstream = Upstream("API", max_retries=int(retry_count[1]) if retry_count else 10)

    class Response:
        headers: Mapping[str, str] = {}

        def __init__(self, status: int) -> None:
            self.status = status

        def close(self) -> None:
            pass

    async def send_once(*_: Any) -> Response:
        nonlocal attempts
        step = steps[min(attempts, len(steps) - 1)]
        attempts += 1
        if isinstance(step, int):
            return Response(step)
        raise (NetworkError if _NETWORK.search(str(step)) else CopilotError)(str(step))

    async def sleep(seconds: float) -> None:
        # the first wait is half a second here: the unit of the case is another one
        waits.append(round(seconds / 0.5 * int(delay[1] if delay else 1000)))

    with (
        patch.object(upstream, "_send_once", send_once),
        patch.object(asyncio, "sleep", sleep),
        patch.object(errors.random, "uniform", lambda low, high: high),  # pyright: ignore[reportUnknownLambdaType]
    ):
        try:
            response = await upstream.send("POST", "http://api", b"", {})
        except CopilotError as error:
            return {"error": error.message, "attempts": attempts, "waits": waits}
    return {"result": response.status, "attempts": attempts, "waits": waits}
