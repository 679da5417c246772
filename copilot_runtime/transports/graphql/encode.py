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
    ActionExecutionResult,
    Custom,
    Event,
    Interrupt,
    RunFailed,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
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
    Plan,
    Projection,
    project_value,
)
from copilot_runtime.transports.graphql.types import message_status, response_status

_MORE = b',"hasNext":true}'
_LAST = b',"hasNext":false}'
_NO_MORE = b'{"hasNext":false}'
_ITEMS = b'{"incremental":[{"items":[%b],"path":%b%d]}]' + _MORE
_DATA = b'{"incremental":[{"data":%b,"path":%b]}]' + _MORE


@dataclass(slots=True)
class _Open:
    """A message that may still grow. `tail` is the path of its stream, up to the index.

    `deferred` are the fields to write when it has ended.
    """

    output: BaseMessageOutput
    path: bytes
    tail: bytes | None
    deferred: Projection
    count: int = 0


class Encoder:
    """Encodes batches of events as payloads of JSON bytes, without their framing."""

    def __init__(self, plan: Plan, response: CopilotResponse) -> None:
        self._plan = plan
        self._response = response
        self._open: dict[str, _Open] = {}
        self._messages = 0
        self._meta_events = 0
        self._payloads: list[bytes] = []
        self._pieces: list[bytes] = []
        self._growing: _Open | None = None
        self.ended = False

    def begin(self, extensions: Mapping[str, Any] | None = None) -> bytes:
        """Return the first payload: the head of the response, with empty lists."""
        head = self._plan.head.project(self._response)
        more = {"extensions": extensions} if extensions else {}
        return dumps({"data": {self._plan.key: head}, **more, "hasNext": True})

    def feed(self, events: Sequence[Event]) -> Sequence[bytes]:
        """Return the payloads for a batch of events, to be sent in one write.

        Each patch is a separate payload, so that a client shows each step of the answer; only
        chunks of one message from the same batch share a patch.
        """
        if len(events) == 1 and type(events[0]) is TextMessageContent:  # nearly always
            return self._encode_piece(events[0])
        for event in events:
            self._encode(event)
        self._flush()
        payloads, self._payloads = self._payloads, []
        if self.ended:
            last = payloads[-1].removesuffix(_MORE) + _LAST if payloads else _NO_MORE
            payloads[-1:] = [last]
        return payloads

    def _encode_piece(self, event: TextMessageContent) -> Sequence[bytes]:
        """Return the payload for one chunk of text: that of `feed`, in fewer steps."""
        message = self._open.get(event.message_id)
        if message is None or message.tail is None:
            return ()
        payload = _ITEMS % (dumps(event.content), message.tail, message.count)
        message.count += 1
        return (payload,)

    def _encode(self, event: Event) -> None:
        match event:  # those of every chat first
            case TextMessageContent():
                self._add_piece(event.message_id, event.content)
            case TextMessageStart():
                self._begin_message(event)
            case TextMessageEnd():
                self._end_message(event.message_id, None)
            case RunFinished() | RunFailed():
                self._end_response(event)
            case RunStarted():
                pass  # the first payload has its ids
            case ActionExecutionArgs():
                self._add_piece(event.call_id, event.delta)
            case ActionExecutionEnd():
                self._end_message(event.call_id, None)
            case Interrupt():
                self._add_meta_event(event)
            case ActionExecutionResult():
                self._end_message(event.call_id, event)
                self._begin_message(event)
            case Custom():
                self._add_custom(event)
            case _:
                self._begin_message(event)

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
        if message is None:
            return
        assert message.tail is not None
        self._payloads.append(_ITEMS % (b",".join(pieces), message.tail, message.count))
        message.count += len(pieces)
        self._pieces = []
        self._growing = None

    def _begin_message(self, event: Event) -> None:
        """Add the message that an event starts, if it does."""
        output, messages = build_message(event), self._plan.messages
        if output is None or messages is None:
            return
        self._flush()
        if output.id in self._open:  # a reused id starts a new message
            self._end_message(output.id, None)
        type_name = type(output).__name__
        parts = messages.selection[type_name]
        item = parts.initial.encode(output)
        self._payloads.append(_ITEMS % (item, messages.path, self._messages))
        path = b"%b%d" % (messages.path, self._messages)
        self._messages += 1
        tail = None if parts.stream is None else path + parts.stream
        self._open[output.id] = _Open(output, path, tail, parts.deferred)
        if type_name not in STREAMED:
            self._end_message(output.id, None)

    def _end_message(
        self, key: str, last: RunFinished | RunFailed | ActionExecutionResult | None
    ) -> None:
        self._flush()
        message = self._open.pop(key, None)
        if message is not None and not message.deferred.is_empty:
            status = message_status(last, message.output.failure)
            data = message.deferred.encode(message.output, status)
            self._payloads.append(_DATA % (data, message.path))

    def _add_custom(self, event: Custom) -> None:
        """Add the ids of an assistant's conversation, which are unknown at the first payload.

        Node delays its first payload instead, until the assistant has started.
        """
        if (found := self._response.read_extensions(event)) is None:
            return
        self._response = found
        self._flush()
        if not self._plan.late.is_empty:
            self._payloads.append(_DATA % (self._plan.late.encode(found), self._plan.path))

    def _add_meta_event(self, event: Interrupt) -> None:
        self._flush()
        stream = self._plan.meta_events
        if stream is None:
            return
        data = dumps(project_value(stream.selection, build_meta_event(event)))
        self._payloads.append(_ITEMS % (data, stream.path, self._meta_events))
        self._meta_events += 1

    def _end_response(self, last: RunFinished | RunFailed) -> None:
        for key in [*self._open]:
            self._end_message(key, last)
        plan = self._plan
        if not plan.deferred.is_empty:
            data = plan.deferred.encode(self._response, response_status(last))
            self._payloads.append(_DATA % (data, plan.path))
        self.ended = True
