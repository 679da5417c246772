"""The conversation on the page during a run of a graph.

A graph may summarize or trim its messages, to spare its model. That does not change what a person
has read, so the page keeps it. A message that the graph changes under its id is changed on the
page, too.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    decode_langchain,
    encode_langchain,
    is_hidden,
    normalize_messages,
    parse_arguments,
    parse_tool_calls,
    read_kind,
)

_Key = tuple[str, str]
"""A text by its id, a call by its id, or the result of a call by the id of the call."""


class Conversation:
    """The messages on the page, and what the states of a graph change.

    `page` are the messages that the page has when the run begins, `thread` those of the graph. If
    one of them, the `question`, is answered again, those that follow it are void.
    """

    def __init__(
        self, page: Sequence[Message], thread: Sequence[JsonObject], question: str | None
    ) -> None:
        places = [at for at, message in enumerate(page) if message.id == question]
        self._is_cut = bool(places) and places[-1] + 1 < len(page)
        page = page[: places[-1] + 1] if places else page
        client = encode_langchain(page)
        self._page = [message for message in page if _key(message) is not None]
        self._sent = _index(decode_langchain(client))
        """The messages of the page as they are after the way to a graph and back."""
        sent = {message["id"] for message in client}
        self._old = {*sent, *(message["id"] for message in thread)}
        self._known = {*self._old}
        """Messages that the page or an earlier state has."""
        answers = [one for one in client if read_kind(one) in ("ai", "tool")]
        has_old = any(message["id"] in sent for message in thread)
        self._is_fresh = bool(thread) and not answers and not has_old
        """Whether the page has only new questions, as one that was loaded again."""
        self._inserted: set[str] = set()
        self._seen: set[_Key] = set()
        """The messages that the graph has had since the run began."""
        self._withdrawn: set[_Key] = set()
        self._state: Sequence[JsonObject] | None = None
        self._values: JsonObject = {}

    def find_new(self, state: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the messages of a state that are new since the run began and may be shown.

        A new message before older ones is part of the graph's memory, such as a summary.
        """
        ids = [message["id"] for message in state]
        last = max((at for at, id in enumerate(ids) if id in self._known), default=0)
        self._inserted |= {id for id in ids[:last] if id not in self._known}
        return [
            message
            for message in state
            if message["id"] not in self._old
            and message["id"] not in self._inserted
            and not is_hidden(message)
        ]

    def update(self, state: Sequence[JsonObject], values: JsonObject) -> None:
        """Record the messages of a state, and all its values. It is not that of a subgraph."""
        if self._state is not None:
            self._withdrawn |= _find_withdrawn(self._state, state)
        for message in state:
            self._known.add(message["id"])
            if not is_hidden(message):
                self._seen |= _keys(message)
        self._state, self._values = state, values

    def build_snapshot(
        self,
        new: Iterable[Message],
        pending: Container[str],
        emitted: Iterable[str],
        ids: Mapping[str, str],
    ) -> list[Message] | None:
        """Return the messages that the page should have, or None if it has them.

        `new` are the messages of this run, `pending` the ids of calls that wait for the page,
        `emitted` texts that a node has emitted, which the graph may have under another id, and
        `ids` those that the graph has given to messages anew, by their former ones.
        """
        if self._state is None:
            return None
        fresh = {key: one for one in new if (key := _key(one)) is not None}
        visible = [message for message in self._state if not is_hidden(message)]
        state, present = _index(decode_langchain(visible)), {one["id"] for one in visible}
        texts = {one.content for one in state.values() if isinstance(one, TextMessage)}
        page = [*self._page, *fresh.values()]
        elsewhere = _find_ids(self._values)
        has_answer = any(key[0] == "text" and key in self._seen for key in fresh)
        # an answer may be stored under another key, or nowhere; other texts are drafts, other calls
        # the choice of a router
        answers = {
            key
            for key, message in fresh.items()
            if key in self._seen
            or message.id in pending
            or key[1] in elsewhere
            or (
                isinstance(message, TextMessage)
                and (not has_answer or message.content in texts.intersection(emitted))
            )
        }
        messages: list[Message] = self._restore(visible, page) if self._is_fresh else []
        for at, message in enumerate(page):
            key = _key(message)
            if key in state:
                messages.append(self._adopt(message, state[key]))
            elif _is_rewritten(message, present) and message.id not in pending:
                pass
            elif (at < len(self._page) or key in answers) and key not in self._withdrawn:
                messages.append(message)
        messages = [_replace_id(message, ids) for message in messages]
        return None if messages == page and not self._is_cut else messages

    def _adopt(self, message: Message, state: Message | None) -> Message:
        """Return a message of the page as the graph has it now; None stands for an ambiguous id."""
        key = _key(message)
        before = message if key is None else self._sent.get(key) or message
        if state is None or _read_content(before) == _read_content(state):
            return message
        match message, state:
            case TextMessage(), TextMessage(content=content, parts=parts):
                return replace(message, content=content, parts=parts)
            case ActionExecutionMessage(), ActionExecutionMessage(name=name, arguments=arguments):
                return replace(message, name=name, arguments=arguments)
            case ResultMessage(), ResultMessage(result=result, parts=parts):
                return replace(message, result=result, parts=parts)
            case _:
                return state

    def _restore(self, visible: Sequence[JsonObject], page: Sequence[Message]) -> list[Message]:
        """Return the earlier messages of the thread for a page that has none of them."""
        keys = {_key(message) for message in page}
        old = [message for message in visible if message["id"] in self._old]
        return [
            message
            for message in decode_langchain(old)
            if _key(message) not in keys and _read_content(message) != ("", [])
        ]


def _find_withdrawn(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> set[_Key]:
    """Return the end of an answer that a graph has deleted, while its question stays.

    Whatever else disappears is memory that the graph no longer needs.
    """
    ids = {message["id"] for message in after}
    withdrawn: set[_Key] = set()
    for message in reversed(before):
        if message["id"] in ids:
            ids_before = {one["id"] for one in before}
            is_summarized = any(is_hidden(one) for one in after if one["id"] not in ids_before)
            return set() if is_summarized else withdrawn
        if read_kind(message) == "human":
            break
        withdrawn |= _keys(message)
    return set()


def _replace_id(message: Message, ids: Mapping[str, str]) -> Message:
    if isinstance(message, ActionExecutionMessage):
        parent = message.parent_id or ""
        return replace(message, parent_id=ids[parent]) if parent in ids else message
    return replace(message, id=ids[message.id]) if message.id in ids else message


def _is_rewritten(message: Message, present: Container[str | None]) -> bool:
    """Return whether the graph has the message to which a text or a call belongs, without it."""
    if isinstance(message, ActionExecutionMessage):
        return message.parent_id in present
    return isinstance(message, TextMessage) and message.id in present


def _find_ids(values: JsonObject) -> set[str]:
    """Return the ids of the messages that a state has under any key, and those of their calls."""
    ids: set[str] = set()
    for key, value in values.items():
        if key != "messages" and isinstance(value, list):
            for message in normalize_messages([one for one in value if isinstance(one, dict)]):
                ids |= {message["id"], *(str(call["id"]) for call in parse_tool_calls(message))}
    return ids


def _index(messages: Iterable[Message]) -> dict[_Key, Message | None]:
    """Return messages by their keys; None for a key that several messages have."""
    index: dict[_Key, Message | None] = {}
    for message in messages:
        if (key := _key(message)) is not None:
            index[key] = None if key in index else message
    return index


def _key(message: Message) -> _Key | None:
    match message:
        case TextMessage(id=id) | ImageMessage(id=id):
            return "text", id
        case ActionExecutionMessage(id=id):
            return "call", id
        case ResultMessage(call_id=id):
            return "result", id
        case _:  # states, activities and thoughts are not the graph's to change
            return None


def _keys(message: JsonObject) -> set[_Key]:
    """Return the keys of a LangChain message: its text and calls, or the result that it is."""
    if read_kind(message) == "tool":
        return {("result", str(message.get("tool_call_id") or ""))}
    calls = {("call", str(call["id"])) for call in parse_tool_calls(message)}
    return {("text", message["id"]), *calls}


def _read_content(message: Message) -> object:
    match message:
        case TextMessage(content=content, parts=parts):
            return content, [*parts]
        case ActionExecutionMessage(name=name, arguments=arguments):
            return name, parse_arguments(arguments)
        case ResultMessage(result=result):
            return result
        case _:
            return message
