"""Prepares conversations as providers accept them: calls paired with results, trimmed to a window.

- A call and its result are one `ToolExchange`, wherever the result is in the history. Results
  without a call and duplicate results are dropped.
- A call without a result (an action that only renders, a turn that was stopped) gets a placeholder
  result: providers refuse a call without one, and a model that does not see its own call repeats
  it.
- Arguments that are not a JSON object are wrapped in one, so that the model sees its own output.
- Empty texts of the model and of the system are dropped, and so are states and activities.
- Reasoning is dropped unless the same provider has signed it and a text or
  call follows: providers refuse reasoning at the end of a stopped answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import orjson

from copilot_runtime.adapters.assembly import read_signature
from copilot_runtime.adapters.attachments import IMAGE_TOKENS, estimate_tokens
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.media.results import replace_text
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import encode_tool_name
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    ImageMessage,
    MediaPart,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.telemetry import semconv

NO_RESULT = "This action returned no result."
CHARACTERS_PER_TOKEN = 3

_LEAST_RESULT = 2_000
_INSTRUCTIONS = ("system", "developer")


@dataclass(frozen=True, slots=True)
class ToolExchange:
    """A tool call of the model, with its result."""

    call: ActionExecutionMessage
    result: ResultMessage


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning of the model, with the signature that its provider requires."""

    id: str
    content: str
    signature: str


HistoryItem = TextMessage | ImageMessage | ToolExchange | Thought
"""An item of a prepared conversation."""


def repair_history(messages: Sequence[Message], provider: str = "") -> list[HistoryItem]:
    """Return the conversation with each call paired with its result, as providers accept it.

    Without a `provider`, it contains no reasoning.
    """
    results = _first_results(messages)
    call_ids: set[str] = set()
    items: list[HistoryItem] = []
    has_thoughts = False
    for message in messages:
        match message:
            case TextMessage():
                if _says_something(message):
                    items.append(message)
            case ImageMessage():
                if message.bytes:
                    items.append(message)
            case ActionExecutionMessage():
                if message.id and message.name and message.id not in call_ids:
                    call_ids.add(message.id)
                    items.append(_exchange(message, results))
            case ReasoningMessage():
                if signature := read_signature(message, provider):
                    items.append(Thought(message.id, message.content, signature))
                    has_thoughts = True
            case ResultMessage() | AgentStateMessage() | ActivityMessage():
                pass
            case _:
                assert_never(message)
    return _drop_idle_thoughts(items) if has_thoughts else items


def fit_history(
    request: ChatRequest,
    tools: Sequence[JsonObject],
    context_tokens: int,
    provider: str,
    capabilities: CapabilityFilter,
    *,
    shows_results: bool = True,
) -> list[HistoryItem]:
    """Return the conversation for `provider`, trimmed to the window beside the tools.

    Its media fit into the limits of the service, see `MediaFilter.apply`.

    If items were dropped, the span of the request gets the attribute for compaction.
    """
    room = context_tokens
    if tools:
        room -= len(encode_body(tools)) // CHARACTERS_PER_TOKEN
    if (texts := _take_texts(request.messages, room * CHARACTERS_PER_TOKEN)) is not None:
        return texts
    messages = capabilities.filter_media(request.messages, shows_results=shows_results)
    items = repair_history(messages, provider)
    fitting = truncate_history(items, room)
    if len(fitting) < len(items):
        request.span.set_attributes({semconv.CONVERSATION_COMPACTED: True})
    return fitting


def truncate_history(items: Sequence[HistoryItem], tokens: int) -> list[HistoryItem]:
    """Return the part of a conversation that fits into `tokens`, by a cautious estimate.

    Instructions, the last message of the user and all after it are never dropped. Other items are
    dropped oldest first, a call together with its result. If the remaining items are too long,
    the longest results are shortened and their calls remain, because a model that does not see its
    own call repeats it. If the conversation is still too long, it is sent unchanged: the provider
    may refuse it.
    """
    limit = tokens * CHARACTERS_PER_TOKEN
    sizes = [_size(item) for item in items]
    if sum(sizes) <= limit:
        return list(items)
    turn = find_last_turn(items)
    keep = {at for at, item in enumerate(items) if at >= turn or _instructs(item)}
    left = limit - sum(sizes[at] for at in keep)
    if left < 0:
        return _shorten_results([items[at] for at in sorted(keep)], -left)
    for at in reversed(range(turn)):
        if at in keep:
            continue
        left -= sizes[at]
        if left < 0:
            break
        keep.add(at)
    return [items[at] for at in sorted(keep)]


def format_result(result: ResultMessage) -> str:
    """Return the result of a call as text; for a result in parts, its texts."""
    text = result.result
    if result.parts:
        text = "".join(part.text for part in result.parts if isinstance(part, TextPart))
    return text or (f"Error: {result.error}" if result.error else "")


def find_last_turn(items: Sequence[HistoryItem]) -> int:
    """Return the index of the user's last message, or of the last item if there is none."""
    for at in reversed(range(len(items))):
        item = items[at]
        if isinstance(item, TextMessage | ImageMessage) and item.role == "user":
            return at
    return len(items) - 1


def _take_texts(messages: Sequence[Message], limit: int) -> list[HistoryItem] | None:
    """Return a conversation of texts that needs no repair and no truncation, else `None`."""
    items: list[HistoryItem] = []
    for message in messages:
        if type(message) is not TextMessage or message.parts or message.role == "tool":
            return None
        limit -= len(message.content)
        if limit < 0 or not message.content.strip():
            return None
        items.append(message)
    return items


def _first_results(messages: Iterable[Message]) -> Mapping[str, ResultMessage]:
    results: dict[str, ResultMessage] = {}
    for message in messages:
        if isinstance(message, ResultMessage):
            results.setdefault(message.call_id, message)
    return results


def _drop_idle_thoughts(items: Sequence[HistoryItem]) -> list[HistoryItem]:
    """Return the items without reasoning that no text or call of the model follows."""
    remaining: list[HistoryItem] = []
    acted = False
    for item in reversed(items):
        match item:
            case ToolExchange():
                acted = True
            case TextMessage(role="system" | "developer"):
                pass
            case TextMessage() | ImageMessage():
                acted = item.role == "assistant"
            case Thought():
                if not acted:
                    continue
            case _:
                assert_never(item)
        remaining.append(item)
    return remaining[::-1]


def _says_something(message: TextMessage) -> bool:
    if message.role == "tool":  # a text answers no call
        return False
    return message.role == "user" or bool(message.content.strip())


def _exchange(call: ActionExecutionMessage, results: Mapping[str, ResultMessage]) -> ToolExchange:
    arguments, name = _json_object(call.arguments), encode_tool_name(call.name)
    if (arguments, name) != (call.arguments, call.name):
        call = replace(call, arguments=arguments, name=name)
    result = results.get(call.id) or ResultMessage(
        id=f"result-{call.id}", call_id=call.id, name=call.name, result=NO_RESULT
    )
    return ToolExchange(call, result)


def _json_object(arguments: str) -> str:
    if not arguments.strip():
        return "{}"
    try:
        if isinstance(loads(arguments.encode()), dict):
            return arguments
    except ValueError:
        arguments = arguments.encode(errors="replace").decode()
    return orjson.dumps({"unreadable": arguments}).decode()


def _size(item: HistoryItem) -> int:
    match item:
        case TextMessage():
            return len(item.content) + (_media_size(item) if item.parts else 0)
        case ImageMessage():
            return IMAGE_TOKENS * CHARACTERS_PER_TOKEN
        case ToolExchange():
            texts = len(item.call.name) + len(item.call.arguments) + len(item.result.result)
            return texts + (_media_size(item.result) if item.result.parts else 0)
        case Thought():
            return len(item.content) or len(item.signature) // 2
        case _:
            assert_never(item)


def _media_size(message: TextMessage | ResultMessage) -> int:
    media = (part for part in message.parts if isinstance(part, MediaPart))
    return sum(map(estimate_tokens, media)) * CHARACTERS_PER_TOKEN


def _instructs(item: HistoryItem) -> bool:
    return isinstance(item, TextMessage) and item.role in _INSTRUCTIONS


def _shorten_results(items: list[HistoryItem], excess: int) -> list[HistoryItem]:
    """Remove `excess` characters from the results, the longest first."""
    exchanges = [(at, item) for at, item in enumerate(items) if isinstance(item, ToolExchange)]
    for at, exchange in sorted(exchanges, key=lambda pair: -len(pair[1].result.result)):
        text = exchange.result.result
        cut = min(excess, len(text) - _LEAST_RESULT)
        if cut <= 0:
            break
        note = f"… ({cut} characters left out)"
        items[at] = replace(exchange, result=replace_text(exchange.result, text[:-cut] + note))
        excess -= cut
    return items
