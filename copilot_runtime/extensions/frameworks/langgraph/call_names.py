"""The ids that the calls of a graph have on the page.

Some services number the calls of every answer from `call_0`. On the page, each call has an id of
its own, because clients find a call by it. The graph keeps its ids, and gets them back.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from copilot_runtime.api.messages import ActionExecutionMessage, Message
from copilot_runtime.base.jsonvalue import JsonObject, as_list
from copilot_runtime.event_order.call_ids import find_free
from copilot_runtime.extensions.frameworks.langgraph.messages import parse_tool_calls, read_kind


class CallNames:
    """The ids of calls on the page, by the message and the id that they have in the graph.

    `page` are the messages of the page, `thread` those of the graph before the run.
    """

    def __init__(self, page: Iterable[Message], thread: Sequence[JsonObject] = ()) -> None:
        self._used: set[str] = set()
        self._page: dict[str, list[str]] = defaultdict(list)
        """The ids of the calls on the page, by the id of their message."""
        self._names: dict[tuple[str, str], str] = {}
        self._latest: dict[str, str] = {}
        """The latest name of each id, which the next result belongs to."""
        self._streamed: dict[str, list[str]] = defaultdict(list)
        """Names of streamed calls that no state has shown yet, by their ids."""
        self._ids: dict[str, str] = {}
        """The ids of the graph, by those on the page that differ."""
        for message in page:
            if isinstance(message, ActionExecutionMessage):
                self._used.add(message.id)
                self._page[message.parent_id or message.id].append(message.id)
        self._free = {*self._used}
        """Calls of the page that may be in the thread below another message, as by-hand ones."""
        self.rename(thread)
        self._free.clear()

    def get_latest(self, id: str) -> str:
        """Return the name of the last call with an id."""
        return self._latest.get(id, id)

    def find(self, message_id: str, id: str) -> str:
        """Return the name of a call that is streamed."""
        if (message_id, id) not in self._names:
            self._streamed[id].append(self._add(message_id, id, find_free(id, self._used)))
        self._latest[id] = self._names[message_id, id]
        return self._names[message_id, id]

    def rename(self, messages: Sequence[JsonObject]) -> list[JsonObject]:
        """Return messages of LangChain, in their order, with the names of their calls."""
        return [self._rename(message) for message in messages]

    def restore(self, messages: Sequence[JsonObject]) -> list[JsonObject]:
        """Return messages for the graph, with its own ids."""
        return [_replace(message, self._ids) for message in messages] if self._ids else [*messages]

    def _rename(self, message: JsonObject) -> JsonObject:
        names: dict[str, str] = {}
        if read_kind(message) == "tool":
            id = str(message.get("tool_call_id"))
            names[id] = self.get_latest(id)
        for at, call in enumerate(parse_tool_calls(message)):
            id = call["id"]
            names[id] = self._latest[id] = self._find_in_state(str(message.get("id")), id, at)
        is_same = all(id == name for id, name in names.items())
        return message if is_same else _replace(message, names)

    def _find_in_state(self, message_id: str, id: str, at: int) -> str:
        name = self._names.get((message_id, id))
        streamed = self._streamed.get(id)
        if name is not None:
            if streamed and name in streamed:
                streamed.remove(name)
            return name
        on_page = self._page.get(message_id, ())
        if at < len(on_page) and (on_page[at] == id or on_page[at].startswith(f"{id}-")):
            return self._add(message_id, id, on_page[at])
        if id in self._free:
            return self._add(message_id, id, id)
        if streamed:  # the graph has stored the answer under another id
            return self._add(message_id, id, streamed.pop(0))
        return self._add(message_id, id, find_free(id, self._used))

    def _add(self, message_id: str, id: str, name: str) -> str:
        self._names[message_id, id] = name
        self._used.add(name)
        self._free.discard(name)
        if name != id:
            self._ids[name] = id
        return name


def _replace(message: JsonObject, ids: dict[str, str]) -> JsonObject:
    """Return a message with other ids of its calls, or of the call that it is the result of."""
    if read_kind(message) == "tool":
        id = message.get("tool_call_id")
        return {**message, "tool_call_id": ids.get(str(id), id)}
    calls = [
        {**call, "id": ids.get(str(call.get("id")), call.get("id"))}
        if isinstance(call, dict)
        else call
        for call in as_list(message.get("tool_calls"))
    ]
    return {**message, "tool_calls": calls} if calls else message
