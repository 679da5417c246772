"""Prepares conversations as providers accept them: calls paired with results, trimmed to a window.

- A call and its result are one `ToolExchange`, wherever the result is in the history. Results
  without a call and duplicate results are dropped.
- A call without a result (an action that only renders, a turn that was stopped) gets a placeholder
  result: providers refuse a call without one, and a model that does not see its own call repeats
  it.
- Arguments that are not a JSON object are wrapped in one, so that the model sees its own output.
- Empty texts of the model and of the system are dropped, and so are states and activities.
- Reasoning is dropped unless the same service sent it (`added_fields`) and a text or call follows:
  providers refuse reasoning at the end of a stopped answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import orjson

from copilot_runtime.adapters.added_fields import AFTER, ID, read_fields, select_own_fields
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
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.telemetry import semconv

NO_RESULT = "This action returned no result."
CHARACTERS_PER_TOKEN = 3

_LEAST_RESULT = 2_000
_INSTRUCTIONS = ("system", "developer")


@dataclass(frozen=True, slots=True)
class ToolExchange:
    """A tool call of the model, with its result, and the fields that its service wants back.

    `fields` is `None` for a call of another service, or without such fields.
    """

    call: ActionExecutionMessage
    result: ResultMessage
    fields: JsonObject | None = None

    @property
    def own_fields(self) -> JsonObject:
        """The fields that the service added to the call."""
        return select_own_fields(self.fields or {})

    @property
    def service_id(self) -> str | None:
        """The id that the service itself gave the call, if it wants that back unchanged."""
        return None if self.fields is None else get_text(self.fields, ID) or self.call.id


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning of the model, with the fields that its service added and wants back."""

    id: str
    content: str
    fields: JsonObject

    @property
    def own_fields(self) -> JsonObject:
        """The fields that the service itself added."""
        return select_own_fields(self.fields)

    def get_text(self, name: str) -> str:
        """Return a field that is a text, or an empty string."""
        return get_text(self.fields, name)


HistoryItem = TextMessage | ImageMessage | ToolExchange | Thought
"""An item of a prepared conversation."""


def repair_history(messages: Sequence[Message], origin: str = "") -> list[HistoryItem]:
    """Return the conversation with each call paired with its result, as providers accept it.

    Reasoning is that of the service of `origin`; without one, there is none.
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
                    items.append(_exchange(message, results, origin))
            case ReasoningMessage():
                if (fields := read_fields(message, origin)) is not None:
                    items.append(Thought(message.id, message.content, fields))
                    has_thoughts = True
            case ResultMessage() | AgentStateMessage() | ActivityMessage():
                pass
            case _:
                assert_never(message)
    return _drop_idle_thoughts(_place_thoughts(items)) if has_thoughts else items


def fit_history(
    request: ChatRequest,
    tools: Sequence[JsonObject],
    context_tokens: int,
    origin: str,
    capabilities: CapabilityFilter,
    *,
    shows_results: bool = True,
) -> list[HistoryItem]:
    """Return the conversation for the service of `origin`, trimmed to the window beside the tools.

    Its media fit into the limits of the service, see `MediaFilter.apply`.

    If items were dropped, the span of the request gets the attribute for compaction.
    """
    room = context_tokens
    if tools:
        room -= len(encode_body(tools)) // CHARACTERS_PER_TOKEN
    if (texts := _take_texts(request.messages, room * CHARACTERS_PER_TOKEN)) is not None:
        return texts
    messages = capabilities.filter_media(request.messages, shows_results=shows_results)
    items = repair_history(messages, origin)
    fitting = truncate_history(items, room)
    if len(fitting) < len(items):
        request.span.set_attributes({semconv.CONVERSATION_COMPACTED: True})
    return fitting


def truncate_history(items: Sequence[HistoryItem], tokens: int) -> list[HistoryItem]:
    """Return the part of a conversation that fits into `tokens`, by a cautious estimate.

    Instructions, the last message of the user and all after it are never dropped. Other items are
    dropped oldest first, a call together with its result and the reasoning before it. If the
    remaining items are too long, the longest results are shortened and their calls remain, because
    a model that does not see its own call repeats it. If the conversation is still too long, it is
    sent unchanged: the provider may refuse it.
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
    start = turn
    for at in reversed(range(turn)):
        if at in keep:
            continue
        left -= sizes[at]
        if left < 0:
            break
        keep.add(at)
        start = at
    while start < turn and _follows_thought(items, start):
        keep.discard(start)
        start += 1
    return [items[at] for at in sorted(keep)]


def format_result(result: ResultMessage) -> str:
    """Return the result of a call as text; for a result in parts, its texts."""
    text = result.result
    if result.parts:
        text = "".join(part.text for part in result.parts if isinstance(part, TextPart))
    return text or (f"Error: {result.error}" if result.error else "")


def _follows_thought(items: Sequence[HistoryItem], at: int) -> bool:
    """Return whether an item of the model belongs to an answer that begins with reasoning."""
    for item in reversed(items[: at + 1]):
        match item:
            case Thought():
                return item is not items[at]
            case ToolExchange() if isinstance(items[at], ToolExchange):
                pass
            case TextMessage(role="assistant"):
                pass
            case _:  # a text after a call begins another answer
                return False
    return False


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


def _place_thoughts(items: Sequence[HistoryItem]) -> Sequence[HistoryItem]:
    """Return the items with each thought after the text or call that it came after."""
    parts = {_get_id(item) for item in items if not isinstance(item, Thought)}
    moved: dict[str, list[Thought]] = {}
    for item in items:
        if isinstance(item, Thought) and (after := item.get_text(AFTER)) in parts:
            moved.setdefault(after, []).append(item)
    if not moved:
        return items
    placed: list[HistoryItem] = []
    for item in items:
        if not (isinstance(item, Thought) and item.get_text(AFTER) in moved):
            placed += [item, *moved.get(_get_id(item), ())]
    return placed


def _get_id(item: HistoryItem) -> str:
    return item.call.id if isinstance(item, ToolExchange) else item.id


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


def _exchange(
    call: ActionExecutionMessage, results: Mapping[str, ResultMessage], origin: str
) -> ToolExchange:
    fields = read_fields(call, origin) if call.extra else None
    arguments, name = _json_object(call.arguments), encode_tool_name(call.name)
    if (arguments, name) != (call.arguments, call.name):
        call = replace(call, arguments=arguments, name=name)
    result = results.get(call.id) or ResultMessage(
        id=f"result-{call.id}", call_id=call.id, name=call.name, result=NO_RESULT
    )
    return ToolExchange(call, result, fields)


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
            return len(item.content) or sum(len(str(value)) for value in item.fields.values()) // 2
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
