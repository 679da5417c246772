"""A model for OpenAI's Agents SDK that says what a test wrote for it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agents import Model, ModelResponse
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_output_item import ImageGenerationCall
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

Piecemeal = ResponseOutputMessage | ResponseFunctionToolCall | ResponseReasoningItem
Output = Piecemeal | ImageGenerationCall
Play = Callable[[list[Any]], Sequence[Output | Exception]]
"""What the model says to a conversation, item by item."""

_FAKE_ID = "__fake_id__"
"""What the SDK calls every item of a model that speaks another API than Responses."""


def text(content: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=content, annotations=[])
    return ResponseOutputMessage(
        id=_FAKE_ID, type="message", role="assistant", status="completed", content=[part]
    )


def call(name: str, arguments: str = "{}", id: str = "c1") -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=_FAKE_ID, type="function_call", call_id=id, name=name, arguments=arguments
    )


def thought(content: str) -> ResponseReasoningItem:
    summary = [Summary(type="summary_text", text=content)]
    return ResponseReasoningItem(id=_FAKE_ID, type="reasoning", summary=summary)


class PlayingModel(Model):
    """Plays to each conversation; in halves, or with `whole` all at once."""

    def __init__(self, play: Play, *, whole: bool = False, endless: bool = False) -> None:
        self.play = play
        self.whole = whole
        self.endless = endless
        self.asked: list[list[Any]] = []
        self.left = asyncio.Event()
        """Set when an answer was given up."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    async def stream_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        heard = [{"role": "user", "content": input}] if isinstance(input, str) else [*input]
        self.asked.append(heard)
        said: list[Output] = []
        for item in self.play(heard):
            if isinstance(item, Exception):
                raise item
            if not self.whole and not isinstance(item, ImageGenerationCall):
                for event in _streamed(len(said), item):
                    yield event
            said.append(item)
        if self.endless:
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=_response(said)
        )


def _response(output: list[Output]) -> Response:
    usage = ResponseUsage(
        input_tokens=5,
        output_tokens=3,
        total_tokens=8,
        input_tokens_details=InputTokensDetails(cached_tokens=2, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=1),
    )
    return Response(
        id="response-1",
        created_at=0,
        model="model-1",
        object="response",
        output=[*output],
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        usage=usage,
    )


def _streamed(at: int, item: Piecemeal) -> Sequence[Any]:
    place: dict[str, Any] = {"output_index": at, "sequence_number": 0}
    first = ResponseOutputItemAddedEvent(type="response.output_item.added", item=item, **place)
    last = ResponseOutputItemDoneEvent(type="response.output_item.done", item=item, **place)
    place["item_id"] = _FAKE_ID
    return [first, *(_delta(item, piece, place) for piece in _halves(item)), last]


def _halves(item: Piecemeal) -> Sequence[str]:
    match item:
        case ResponseOutputMessage():
            [part] = item.content
            whole = part.text if isinstance(part, ResponseOutputText) else ""
        case ResponseFunctionToolCall():
            whole = item.arguments
        case ResponseReasoningItem():
            whole = item.summary[0].text
    middle = len(whole) // 2
    return [whole[:middle], whole[middle:]]


def _delta(item: Piecemeal, piece: str, place: dict[str, Any]) -> Any:
    match item:
        case ResponseOutputMessage():
            return ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=piece,
                content_index=0,
                logprobs=[],
                **place,
            )
        case ResponseFunctionToolCall():
            return ResponseFunctionCallArgumentsDeltaEvent(
                type="response.function_call_arguments.delta", delta=piece, **place
            )
        case ResponseReasoningItem():
            return ResponseReasoningSummaryTextDeltaEvent(
                type="response.reasoning_summary_text.delta", delta=piece, summary_index=0, **place
            )
