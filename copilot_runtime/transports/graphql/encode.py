"""Encode the log of a run as the patches of a planned response.

The patches follow the 2022 draft of incremental delivery, which urql 5 implements: every patch has
its full path, and for list items the path ends with the index of the first one.
Source: https://github.com/graphql/graphql-wg/blob/main/rfcs/DeferStream.md (as of 2022-08-24).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    Custom,
    Event,
    Interrupt,
    RunFailed,
    RunFinished,
    TextMessageContent,
    TextMessageEnd,
)
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.transports.graphql.outputs import (
    BaseMessageOutput,
    CopilotResponse,
    build_message,
    build_meta_event,
)
from copilot_runtime.transports.graphql.plan import (
    STREAMED,
    Field,
    Plan,
    project,
    project_field,
    project_value,
)
from copilot_runtime.transports.graphql.types import message_status, response_status

_NO_MORE = b'{"hasNext":false}'
_PIECE = b'{"incremental":[{"items":[%b],"path":%b%d]}],"hasNext":true}'

_LATE_FIELDS = {"runId", "extensions"}
"""Fields of the response that may be unknown until the run has started."""


@dataclass(slots=True)
class _Open:
    """A message that may still grow. `tail` is the path of its stream, up to the index.

    `deferred` are the fields to write when it has ended.
    """

    output: BaseMessageOutput
    path: bytes
    tail: bytes | None
    deferred: Sequence[Field]
    count: int = 0


class Encoder:
    """Encodes batches of events as payloads of JSON bytes, without their framing."""

    def __init__(self, plan: Plan, response: CopilotResponse) -> None:
        self._plan = plan
        self._response = response
        self._root = b'["' + plan.key.encode() + b'"'
        self._open: dict[str, _Open] = {}
        self._messages = 0
        self._meta_events = 0
        self._patches: list[bytes] = []
        self._pieces: list[bytes] = []
        self._growing: _Open | None = None
        self.ended = False

    def begin(self, extensions: Mapping[str, Any] | None = None) -> bytes:
        """Return the first payload: the head of the response, with empty lists."""
        head = {
            field.key: []
            if field in (self._plan.messages, self._plan.meta_events)
            else project_field(field, self._response)
            for field in self._plan.head
        }
        more = {"extensions": extensions} if extensions else {}
        return dumps({"data": {self._plan.key: head}, **more, "hasNext": True})

    def feed(self, events: Sequence[Event]) -> list[bytes]:
        """Return the payloads for a batch of events, to be sent in one write.

        Each patch is a separate payload, so that a client shows each step of the answer; only
        chunks of one message from the same batch share a patch.
        """
        if len(events) == 1 and type(events[0]) is TextMessageContent:  # nearly always
            return self._encode_piece(events[0])
        for event in events:
            self._encode(event)
        self._flush()
        patches, self._patches = self._patches, []
        payloads = [b'{"incremental":[%b],"hasNext":true}' % patch for patch in patches]
        if self.ended:
            last = b'{"incremental":[%b],"hasNext":false}' % patches[-1] if patches else _NO_MORE
            payloads[-1:] = [last]
        return payloads

    def _encode_piece(self, event: TextMessageContent) -> list[bytes]:
        """Return the payload for one chunk of text: that of `feed`, in fewer steps."""
        message = self._open.get(event.message_id)
        if message is None or message.tail is None:
            return []
        payload = _PIECE % (dumps(event.content), message.tail, message.count)
        message.count += 1
        return [payload]

    def _encode(self, event: Event) -> None:
        match event:
            case TextMessageContent(message_id=key, content=piece):
                self._add_piece(key, piece)
            case ActionExecutionArgs(call_id=key, delta=piece):
                self._add_piece(key, piece)
            case TextMessageEnd(message_id=key):
                self._end_message(key, None)
            case ActionExecutionEnd(call_id=key):
                self._end_message(key, None)
            case Interrupt():
                self._add_meta_event(event)
            case Custom():
                self._add_custom(event)
            case RunFinished() | RunFailed():
                self._end_response(event)
            case _:
                if (message := build_message(event)) is not None:
                    self._begin_message(message)

    def _add_piece(self, key: str, piece: str) -> None:
        message = self._open.get(key)
        if message is None or message.tail is None:
            return
        if message is not self._growing:
            self._flush()
            self._growing = message
        self._pieces.append(dumps(piece))

    def _flush(self) -> None:
        """Build one patch from the buffered chunks of one message, one item each."""
        message, pieces = self._growing, self._pieces
        if message is None or not pieces:
            return
        assert message.tail is not None
        self._patches.append(
            b'{"items":[%b],"path":%b%d]}' % (b",".join(pieces), message.tail, message.count)
        )
        message.count += len(pieces)
        self._pieces = []
        self._growing = None

    def _begin_message(self, output: BaseMessageOutput) -> None:
        self._flush()
        field = self._plan.messages
        if field is None or field.selection is None:
            return
        if output.id in self._open:  # a reused id starts a new message
            self._end_message(output.id, None)
        type_name = type(output).__name__
        path = b'%b,"%b",%d' % (self._root, field.key.encode(), self._messages)
        self._messages += 1
        streamed = STREAMED.get(type_name)
        fields = field.selection.initial[type_name]
        item = {
            one.key: [] if one.name == streamed else project_field(one, output) for one in fields
        }
        self._patches.append(b'{"items":[%b],"path":%b]}' % (dumps(item), path))
        key = next((one.key for one in fields if one.name == streamed), None)
        tail = None if key is None else b'%b,"%b",' % (path, key.encode())
        self._open[output.id] = _Open(output, path, tail, field.selection.deferred[type_name])
        if streamed is None:
            self._end_message(output.id, None)

    def _end_message(self, key: str, last: RunFinished | RunFailed | None) -> None:
        self._flush()
        message = self._open.pop(key, None)
        if message is not None:
            status = message_status(last, message.output.failure)
            self._add_data(message.deferred, message.output, message.path, status)

    def _add_custom(self, event: Custom) -> None:
        """Add the ids of an assistant's conversation, which are unknown at the first payload.

        Node delays its first payload instead, until the assistant has started.
        """
        if (found := self._response.read_extensions(event)) is None:
            return
        self._response = found
        self._flush()
        fields = [field for field in self._plan.head if field.name in _LATE_FIELDS]
        self._add_data(fields, found, self._root)

    def _add_meta_event(self, event: Interrupt) -> None:
        self._flush()
        field = self._plan.meta_events
        if field is None or field.selection is None:
            return
        data = dumps(project_value(field, build_meta_event(event)))
        path = b'%b,"%b",%d' % (self._root, field.key.encode(), self._meta_events)
        self._patches.append(b'{"items":[%b],"path":%b]}' % (data, path))
        self._meta_events += 1

    def _end_response(self, last: RunFinished | RunFailed) -> None:
        for key in [*self._open]:
            self._end_message(key, last)
        self._add_data(self._plan.deferred, self._response, self._root, response_status(last))
        self.ended = True

    def _add_data(
        self, fields: Sequence[Field], owner: object, path: bytes, status: object = None
    ) -> None:
        """Add a patch with deferred data of a message or of the response."""
        if fields:
            data = dumps(project(fields, owner, status))
            self._patches.append(b'{"data":%b,"path":%b]}' % (data, path))
