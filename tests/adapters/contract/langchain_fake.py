"""A chat model of LangChain that plays a script: it is asked as Python, not over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, assert_never

import orjson
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import SecretStr

from copilot_runtime.adapters.langchain import LangChainAdapter
from tests.adapters.contract import fakes
from tests.adapters.contract.fakes import KEY, MODEL, Asked, Heard, Step, Tool
from tests.adapters.contract.tool_faults import find_fault

Json = dict[str, Any]

_STATUSES = {"overloaded": 529, "rate_limit": 429, "server_error": 500}
_ROLES = {"system": "instructions", "human": "user", "ai": "assistant", "tool": "tool"}


@dataclass(frozen=True)
class Response:
    """The answer that a provider's client had."""

    headers: Mapping[str, str]


class ProviderError(Exception):
    """What a provider's client raises: they have a `status_code`, and the response."""

    def __init__(
        self,
        message: str,
        status_code: int,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.code = code
        wait = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
        self.response = Response({"x-request-id": "req-7", **wait})


@dataclass
class Play:
    """What the copies of one chat model share: the scripts, and what was asked."""

    scripts: list[Sequence[Step]] = field(default_factory=list[Sequence[Step]])
    asked: list[Asked] = field(default_factory=list[Asked])
    open: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, change: int) -> None:
        self.open += change
        self.changed.set()


class ScriptedChatModel(BaseChatModel):
    """Has the fields that the chat models of most providers have."""

    model: str = MODEL
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    api_key: SecretStr = SecretStr(KEY)
    play: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[Any],
        *,
        tool_choice: str | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        bound = {"tool_choice": tool_choice, "parallel_tool_calls": parallel_tool_calls}
        return self.bind(tools=tools, **bound, **kwargs)

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise AssertionError("It only streams.")

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, *_: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        play: Play = self.play
        play.asked.append(_asked(self, messages, stop, kwargs))
        if fault := find_fault("langchain", play.asked[-1].tools):
            raise ProviderError(fault, 400)
        script = play.scripts[min(len(play.asked), len(play.scripts)) - 1]
        play.count(1)
        try:
            async for chunk in _chunks(script):
                yield ChatGenerationChunk(message=chunk)
                await asyncio.sleep(0)  # as a socket would
        finally:
            play.count(-1)


class LangChainFake:
    name = "langchain"

    def __init__(self) -> None:
        self.play = Play()

    @property
    def asked(self) -> list[Asked]:
        return self.play.asked

    def adapter(self, **options: Any) -> LangChainAdapter:
        model = ScriptedChatModel(play=self.play, model=options.pop("model", MODEL))
        for of_http in ("max_retries", "connect_timeout"):
            options.pop(of_http, None)
        return LangChainAdapter(model, **options)

    def plays(self, *steps: Step) -> None:
        self.play.scripts.append(steps)

    def forget(self) -> None:
        """Begin anew, for the next case of the same test."""
        self.play.scripts.clear()
        self.play.asked.clear()

    async def until_closed(self) -> None:
        while self.play.open:
            self.play.changed.clear()
            await self.play.changed.wait()

    async def until_asked(self, count: int) -> None:
        while len(self.play.asked) < count:
            self.play.changed.clear()
            await self.play.changed.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


async def _chunks(steps: Sequence[Step]) -> AsyncIterator[AIMessageChunk]:
    calls: dict[str, int] = {}
    thoughts = 0
    for step in steps:
        match step:
            case fakes.Think(text, signature):
                block: Json = {"type": "thinking", "thinking": text, "index": thoughts}
                if signature:
                    block["signature"] = signature
                    thoughts += 1
                yield _chunk([block])
            case fakes.Say(text):
                yield _chunk(text)
            case fakes.CallStart(id, name):
                calls[id] = len(calls)
                yield _call(calls[id], id, name, "")
            case fakes.CallArgs(id, piece):
                yield _call(calls[id], None, None, piece)
            case fakes.CallEnd() | fakes.Split() | fakes.NoDone():
                pass
            case fakes.Ping():
                yield _chunk("")
            case fakes.Tokens(input, output, cached, reasoning):
                yield _chunk(
                    "",
                    usage_metadata={
                        "input_tokens": input,
                        "output_tokens": output,
                        "total_tokens": input + output,
                        "input_token_details": {"cache_read": cached},
                        "output_token_details": {"reasoning": reasoning},
                    },
                )
            case fakes.Stop(reason):
                yield _chunk("", response_metadata={"finish_reason": reason})
            case fakes.Fails(status, kind, retry_after, message):
                code = {"context_length": "context_length_exceeded"}.get(kind, kind)
                raise ProviderError(message, status, code or None, retry_after)
            case fakes.ErrorInStream(kind, message):
                raise ProviderError(message, _STATUSES[kind])
            case fakes.Breaks():
                raise ConnectionResetError("The connection was lost.")
            case fakes.Silence():
                await asyncio.Event().wait()
            case fakes.Waits(event):
                await event.wait()
            case fakes.Refuse():
                raise AssertionError("LangChain has no word for it.")
            case _:
                assert_never(step)


def _chunk(content: Any, **more: Any) -> AIMessageChunk:
    return AIMessageChunk(content=content, id="run-1", **more)


def _call(index: int, id: str | None, name: str | None, piece: str) -> AIMessageChunk:
    call: Any = {"type": "tool_call_chunk", "index": index, "id": id, "name": name, "args": piece}
    return _chunk("", tool_call_chunks=[call])


def _asked(
    model: ScriptedChatModel,
    messages: Sequence[BaseMessage],
    stop: Sequence[str] | None,
    bound: Mapping[str, Any],
) -> Asked:
    functions = [tool["function"] for tool in bound.get("tools", ())]
    tools = [
        Tool(name=f["name"], description=f["description"], parameters=f["parameters"])
        for f in functions
    ]
    names = (
        *("temperature", "top_p", "max_tokens", "seed"),
        *("frequency_penalty", "presence_penalty", "reasoning_effort"),
    )
    sent: Json = {name: getattr(model, name) for name in names}
    sent |= {"stop": stop, "parallel_tool_calls": bound.get("parallel_tool_calls")}
    sent |= _choice(bound.get("tool_choice"), [tool.name for tool in tools])
    return Asked(
        model=model.model,
        messages=[heard for message in messages for heard in _heard(message)],
        tools=tools,
        parameters={name: value for name, value in sent.items() if value is not None},
        body={"messages": messages, **bound},
    )


def _choice(choice: str | None, names: Sequence[str]) -> Json:
    if choice in names:
        return {"tool_choice": "function", "tool_choice_name": choice}
    return {"tool_choice": "required" if choice == "any" else choice}


def _heard(message: BaseMessage) -> list[Heard]:
    role = _ROLES[message.type]
    if isinstance(message, ToolMessage):
        return [Heard(role=role, text=str(message.text), result_of=message.tool_call_id)]
    blocks: Any = message.content
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}] if blocks else []
    heard = [_block(role, block) for block in blocks]
    if isinstance(message, AIMessage):
        heard += [
            Heard(role=role, call=(call["id"] or "", call["name"], call["args"]))
            for call in message.tool_calls
        ]
    return heard


def _block(role: str, block: Json) -> Heard:
    where = block.get("base64") or block.get("url") or ""
    match block["type"]:
        case "text":
            return Heard(role=role, text=block["text"])
        case "image":
            return Heard(role=role, image=where)
        case "file":
            return Heard(role=role, document=where)
        case "thinking":
            return Heard(role=role, text=block["thinking"], thought=block["signature"])
        case kind:
            raise AssertionError(f"No such block: {kind!r} {orjson.dumps(block)!r}.")
