"""Translate graphql-core's incremental delivery into the dialect of v1 clients.

graphql-core 3.3 names each stream once (`pending`) and then refers to it by id. The client's
urql reads the 2022 draft: every patch carries its whole path, and for list items the path ends
with the index of the first item. It merges the newer dialect into the wrong places, silently.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from graphql.execution import (
    IncrementalDeferResult,
    IncrementalStreamResult,
    InitialIncrementalExecutionResult,
    PendingResult,
    SubsequentIncrementalExecutionResult,
)

from copilot_runtime.transports.graphql.errors import format_error

Path = list[str | int]
Delivered = list[tuple[Path, Any]]
"""The values of one payload, each with its path."""


@dataclass(slots=True)
class _Stream:
    """A stream or a deferred part; `count` is how many items it has brought, once it is known."""

    path: Path
    label: str | None
    count: int | None = None

    def measure(self, delivered: Delivered) -> int:
        """Return the number of its items, those that came with its parent included."""
        if self.count is None:
            self.count = _count_items(self.path, delivered)
        return self.count


class PathDialect:
    """Translates the results of one operation. Has the path of each stream and counts its items."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    def first(self, result: InitialIncrementalExecutionResult) -> dict[str, Any]:
        """Return the payload of the first result."""
        self._announce(result.pending)
        self._measure([([], result.data)])
        payload: dict[str, Any] = {"data": result.data}
        if result.errors:
            payload["errors"] = [format_error(error) for error in result.errors]
        return {**payload, "hasNext": result.has_next}

    def next(self, result: SubsequentIncrementalExecutionResult) -> dict[str, Any]:
        """Return the payload of a later result."""
        self._announce(result.pending or ())  # what is announced may be delivered along with it
        delivered: Delivered = []
        patches = [self._patch(change, delivered) for change in result.incremental or ()]
        self._measure(delivered)
        for done in result.completed or ():
            stream = self._streams.pop(done.id)
            if done.errors:
                errors = [format_error(error) for error in done.errors]
                patches.append({"data": None, "path": stream.path, "errors": errors})
        payload: dict[str, Any] = {"incremental": patches} if patches else {}
        return {**payload, "hasNext": result.has_next}

    def _patch(
        self, change: IncrementalDeferResult | IncrementalStreamResult, delivered: Delivered
    ) -> dict[str, Any]:
        stream = self._streams[change.id]
        path = [*stream.path, *(change.sub_path or ())]
        if isinstance(change, IncrementalStreamResult):
            start = stream.measure(delivered)
            stream.count = start + len(change.items)
            delivered += [([*path, start + at], item) for at, item in enumerate(change.items)]
            patch: dict[str, Any] = {"items": change.items, "path": [*path, start]}
        else:
            delivered.append((path, change.data))
            patch = {"data": change.data, "path": path}
        if stream.label:
            patch["label"] = stream.label
        if change.errors:
            patch["errors"] = [format_error(error) for error in change.errors]
        return patch

    def _announce(self, pending: Iterable[PendingResult]) -> None:
        for part in pending:
            self._streams[part.id] = _Stream(part.path, part.label)

    def _measure(self, delivered: Delivered) -> None:
        """Measure the streams that this payload announced, while it is here."""
        for stream in self._streams.values():
            stream.measure(delivered)


def _count_items(path: Path, delivered: Delivered) -> int:
    """Return how many items of a list came with its parent (`initialCount`)."""
    for base, value in delivered:
        if path[: len(base)] == base:
            with suppress(KeyError, IndexError, TypeError):  # it came with another value
                for key in path[len(base) :]:
                    value = value[key]
                if isinstance(value, list):
                    return len(value)
    return 0
