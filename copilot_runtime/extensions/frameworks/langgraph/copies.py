"""The messages that a graph stores again under other ids, such as a node that rebuilds them all."""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from itertools import islice

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    extract_text,
    is_hidden,
    parse_tool_calls,
    read_kind,
)


class Copies:
    """Finds copies in the states of a run, of its messages and of those from before.

    `thread` and `client` are the messages of the graph and of the page when the run begins.
    """

    def __init__(self, thread: Sequence[JsonObject], client: Sequence[JsonObject]) -> None:
        old = {message["id"]: message for message in (*thread, *client)}
        start = len(old) if client and _is_question(client[-1]) else _find_turn([*old.values()])
        self._old = dict(islice(old.items(), start))
        self._new = dict(islice(old.items(), start, None))
        """The messages of the turn, which may have begun before the run."""
        self.ids: dict[str, str] = {}
        """The ids that messages have in the latest state, by their own, where these differ."""

    def resolve(self, state: Sequence[JsonObject], *, nested: bool) -> Sequence[JsonObject]:
        """Return a state of the graph, or of a subgraph (`nested`), with originals for copies.

        A copy has the text and the calls of a message that the state lacks. Up to the last question
        that is an old message; after it, one of the turn, because an old one is another answer.
        """
        ids = {message["id"] for message in state}
        old, new = _group_others(self._old, ids), _group_others(self._new, ids)
        turn, resolved, copies = _find_turn(state), [*state], dict[str, str]()
        for at in reversed(range(len(state)) if old or new else ()):  # the end is never trimmed
            id, originals = state[at]["id"], new if at >= turn else old
            if id in self._old or id in self._new:
                continue
            if found := originals.get(_read_content(state[at])):
                resolved[at] = found.pop()
                copies[resolved[at]["id"]] = id
        if not nested:
            self.ids = copies
            for one in resolved:
                (self._old if one["id"] in self._old else self._new)[one["id"]] = one
        return resolved


def _find_turn(messages: Sequence[JsonObject]) -> int:
    """Return the place after the last question."""
    return max((at for at, one in enumerate(messages, 1) if _is_question(one)), default=0)


def _group_others(
    messages: Mapping[str, JsonObject], ids: Container[str]
) -> Mapping[bytes, list[JsonObject]]:
    """Return the messages with other ids, by their content."""
    groups: dict[bytes, list[JsonObject]] = defaultdict(list)
    for id, message in messages.items():
        if id not in ids:
            groups[_read_content(message)].append(message)
    return groups


def _read_content(message: JsonObject) -> bytes:
    text, call_id = extract_text(message.get("content")), message.get("tool_call_id")
    calls = [[call["id"], call["name"], call["args"]] for call in parse_tool_calls(message)]
    return dumps([read_kind(message), text, call_id, calls])


def _is_question(message: JsonObject) -> bool:
    return read_kind(message) == "human" and not is_hidden(message)
