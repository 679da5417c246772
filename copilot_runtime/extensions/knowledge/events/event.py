"""Resource events and filters for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    JsonValue,
    as_list,
    as_object,
    get_text,
    require_object,
)
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access, select
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    contains,
    parse_identifier,
    strip_namespace,
)

DetailType = Literal["RESOURCE_PUT", "RESOURCE_GET", "RESOURCE_DELETE"]
"""Operations on resources themselves. Plans, runs and applications have other types."""

MOST_RESOURCES = 100
"""Maximum number of resources in one event; larger sets are split into several events."""

_MOST_BYTES = 64 * 1024
"""Maximum size of an event's detail, in bytes; store larger data as a resource."""

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceEvent:
    """An operation on resources, such as a change or the end of a run."""

    detail_type: str
    """The operation, in capitals: `RESOURCE_PUT`, `TASK_ENDED`, or an application's own name."""
    resources: tuple[Identifier, ...]
    """Users with read access to any of them get the event. Events without resources are internal.
    """
    source: str = "resources"
    """The component that performed the operation."""
    detail: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Further JSON data, only for users with read access to all of the resources."""
    id: str = field(default_factory=lambda: str(uuid4()))
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    cursor: str = field(default="", compare=False)
    """The event's position in a log; empty if it is not stored."""

    def check(self) -> None:
        """Raise `Misuse` or `LimitExceeded` if the event must not be published."""
        for name in ("source", "detail_type", "id"):
            text = getattr(self, name)
            if not text or len(text) > _LONGEST_NAME or not text.isprintable():
                raise Misuse(
                    f"The {name} of an event has 1 to {_LONGEST_NAME} printable characters, and "
                    f"this is {text[:80]!r}.",
                )
        if len(self.resources) > MOST_RESOURCES:
            raise LimitExceeded(
                f"An event of {len(self.resources)} resources is too large.",
                hint=f"Publish several, each of {MOST_RESOURCES} at most.",
            )
        if (size := len(dumps(dict(self.detail)))) > _MOST_BYTES:
            raise LimitExceeded(
                f"The detail of an event has {size} bytes; {_MOST_BYTES} are allowed.",
                hint="Put it into a resource, and publish an event about that.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """A filter for events. Empty fields match every event."""

    sources: Collection[str] = ()
    detail_types: Collection[str] = ()
    prefix: str = ""
    """The URI or URN of a resource: matches it and its descendants."""
    access: Access = FULL_ACCESS
    """Resources without permission are removed from events. Only full access sees read events of
    others."""

    def wants(self, detail_type: str) -> bool:
        """Return whether the filter can match any event of a type."""
        if detail_type == "RESOURCE_GET" and self.access is not FULL_ACCESS:
            return False
        return not self.detail_types or detail_type in self.detail_types

    def match(self, event: ResourceEvent) -> ResourceEvent | None:
        """Return the matching part of an event, or None, without access checks."""
        if (self.sources and event.source not in self.sources) or not self.wants(event.detail_type):
            return None
        prefix = strip_namespace(self.prefix)
        if not prefix:
            return event
        return _narrow(event, [it for it in event.resources if contains(prefix, str(it))])

    async def judge(self, event: ResourceEvent) -> ResourceEvent | None:
        """Return the part of an event that the filter's access permits, or None."""
        return next(iter(await self.judge_all([event])), None)

    async def judge_all(self, events: Sequence[ResourceEvent]) -> Sequence[ResourceEvent]:
        """Return the permitted parts of events, with one policy query for all of them."""
        if self.access is FULL_ACCESS:
            return events
        resources = dict.fromkeys(it for event in events for it in event.resources)
        allowed = {*await select(self.access, resources)}
        parts = [
            _narrow(event, [it for it in event.resources if it in allowed]) for event in events
        ]
        return [part for part in parts if part is not None]


def split_resources(identifiers: Iterable[Identifier]) -> Iterable[tuple[Identifier, ...]]:
    """Split resources into batches that fit into one event each."""
    identifiers = (*identifiers,)
    for start in range(0, len(identifiers), MOST_RESOURCES):
        yield identifiers[start : start + MOST_RESOURCES]


def encode_event(event: ResourceEvent) -> JsonObject:
    """Return an event as JSON, with resources as URIs; an empty detail is omitted."""
    encoded: JsonObject = {
        "id": event.id,
        "source": event.source,
        "time": event.time,
        "detail_type": event.detail_type,
        "resources": [str(identifier) for identifier in event.resources],
    }
    if event.detail:
        encoded["detail"] = {**event.detail}
    return encoded


def decode_event(data: bytes, cursor: str = "") -> ResourceEvent:
    """Decode an event from JSON. Raises `Misuse` if it is malformed."""
    try:
        value = require_object(loads(data), "An event")
    except ValueError as error:
        raise Misuse(f"An event cannot be read: {error}") from error
    return ResourceEvent(
        id=get_text(value, "id"),
        source=get_text(value, "source"),
        time=get_text(value, "time"),
        detail_type=get_text(value, "detail_type"),
        resources=tuple(
            parse_identifier(uri) for uri in as_list(value.get("resources")) if isinstance(uri, str)
        ),
        detail=as_object(value.get("detail")),
        cursor=cursor,
    )


def _narrow(event: ResourceEvent, resources: Collection[Identifier]) -> ResourceEvent | None:
    """Return the event restricted to these resources, or None if there are none.

    If resources are removed, the detail is removed as well, because it may be about them.
    """
    if len(resources) == len(event.resources):
        return event if resources else None
    return replace(event, resources=tuple(resources), detail={}) if resources else None
