"""A small library that tests ask about: three pages, and an embedder that counts words."""

import json
import re
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from copilot_runtime.api import Embedder
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.storage import MemoryStorage
from tests.wire_agui.server import serving

LIBRARY = "https://mill.example/id/library"
ADA = "https://mill.example/id/ada"

_SIZE = 512


class WordCounter(Embedder):
    """Texts are alike if they have words in common."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @property
    def model(self) -> str:
        return "test-words-512"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        vectors = np.zeros((len(texts), _SIZE), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                vector[zlib.crc32(word.encode()) % _SIZE] += 1
            vector /= np.linalg.norm(vector) or 1
        return vectors


def write_pages(folder: Path) -> Path:
    """Write the pages, and return their folder."""
    pages = folder / "pages"
    pages.mkdir()
    (pages / "library.html").write_text(
        f"""<!doctype html><title>The library</title>
        <main itemscope itemtype="https://schema.org/Library" itemid="{LIBRARY}">
          <h1 itemprop="name">Mill Library</h1>
          <p itemprop="description">The library opens at nine and closes at five.</p>
          <div itemprop="employee" itemscope itemtype="https://schema.org/Person" itemid="{ADA}">
            <b itemprop="name">Ada Byron</b>, <i itemprop="jobTitle">head librarian</i>
          </div>
        </main>""",
        encoding="utf-8",
    )
    (pages / "rules.md").write_text(
        "# House rules\n\nDogs wait outside. Books are lent for four weeks.\n", encoding="utf-8"
    )
    (pages / "secret.md").write_text(
        "# Secret\n\nThe safe opens with the number 4711.\n", encoding="utf-8"
    )
    return pages


def library(pages: Path, **more: Any) -> Knowledge:
    """Return knowledge of the pages, in memory."""
    fields: dict[str, Any] = {"embedder": WordCounter(), "sources": [pages], **more}
    return Knowledge(fields.pop("storage", None) or MemoryStorage(), **fields)


async def stocked(pages: Path, **more: Any) -> Knowledge:
    """Return knowledge of the pages that has taken them in."""
    knowledge = library(pages, **more)
    await knowledge.ingest()
    return knowledge


Json = dict[str, Any]


def choose_call(question: str) -> tuple[str, Json]:
    """Return the tool to call and its arguments: `recall …`, or a search for everything."""
    word, _, rest = question.partition(" ")
    return (
        ("recall", {"input": [rest]})
        if word == "recall"
        else ("search_content", {"input": [question]})
    )


@asynccontextmanager
async def seeking() -> AsyncGenerator[str, None]:
    """Serve the model in OpenAI's protocol; yield its base URL."""

    async def complete(request: Request) -> Response:
        body = await request.json()
        delta = _answer(body["messages"], body.get("tools") or ())
        reason = "tool_calls" if "tool_calls" in delta else "stop"
        head = {"id": "c-1", "created": 1, "model": "m"}
        if not body.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": reason}
            return JSONResponse({**head, "object": "chat.completion", "choices": [choice]})
        chunks = [
            {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, **fields}]}
            for fields in (
                {"delta": delta, "finish_reason": None},
                {"delta": {}, "finish_reason": reason},
            )
        ]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        return StreamingResponse([*lines, "data: [DONE]\n\n"], media_type="text/event-stream")

    app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    async with serving(app) as port:
        yield f"http://127.0.0.1:{port}/v1"


def _answer(messages: Sequence[Json], tools: Sequence[Json]) -> Json:
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"Found: {last['content']}"}
    name, arguments = choose_call(last["content"])
    assert name in [tool["function"]["name"] for tool in tools], tools
    call = {"name": name, "arguments": json.dumps(arguments)}
    called = {"index": 0, "id": "call-1", "type": "function", "function": call}
    return {"role": "assistant", "content": None, "tool_calls": [called]}


class Seeker(BaseChatModel):
    """The same model for LangChain, for which OpenAI's package is not installed here."""

    tools: Sequence[str] = ()

    @property
    def _llm_type(self) -> str:
        return "seeker"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> "Seeker":
        return Seeker(tools=[getattr(it, "name", None) or it["name"] for it in tools])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage(f"Found: {last.content}")
        else:
            name, arguments = choose_call(str(last.content))
            assert name in self.tools, self.tools
            answer = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": "call-1"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])
