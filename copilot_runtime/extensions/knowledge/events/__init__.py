"""Resource events: a stream to subscribe to, and a log to read."""

from copilot_runtime.extensions.knowledge.events.event import (
    MOST_RESOURCES,
    DetailType,
    EventFilter,
    ResourceEvent,
    decode_event,
    encode_event,
)
from copilot_runtime.extensions.knowledge.events.hub import ResourceEvents, Subscription
from copilot_runtime.extensions.knowledge.events.log import (
    START,
    CursorGone,
    EventLog,
    EventPage,
    MemoryEventLog,
    NoEventLog,
)

__all__ = [
    "MOST_RESOURCES",
    "START",
    "CursorGone",
    "DetailType",
    "EventFilter",
    "EventLog",
    "EventPage",
    "MemoryEventLog",
    "NoEventLog",
    "ResourceEvent",
    "ResourceEvents",
    "Subscription",
    "decode_event",
    "encode_event",
]
