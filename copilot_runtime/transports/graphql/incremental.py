"""Say what graphql-core delivers in the dialect the v1 client reads.

graphql-core 3.3 names each stream once (`pending`) and then refers to it by id. The client's
urql reads the 2022 draft: every patch carries its whole path, and for list items the path ends
with the index of the first item. It merges the newer dialect into the wrong places, silently.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from graphql.execution import (
    InitialIncrementalExecutionResult,
    SubsequentIncrementalExecutionResult,
)

from copilot_runtime.transports.graphql.errors import format_error

Path = Sequence[str | int]


class PathDialect:
    """Remembers which stream has which path, and how many items it has brought so far."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._sent: dict[str, int] = {}
        self._labels: dict[str, str] = {}

    def first(self, result: InitialIncrementalExecutionResult) -> dict[str, Any]:
        """Return the payload of the first result."""
        self._announce(result.pending)
        self._measure(result.pending, [((), result.data)])
        payload: dict[str, Any] = {"data": result.data}
        if result.errors:
            payload["errors"] = [format_error(error) for error in result.errors]
        payload["hasNext"] = result.has_next
        return payload

    def next(self, result: SubsequentIncrementalExecutionResult) -> dict[str, Any]:
        """Return the payload of a later result."""
        self._announce(result.pending or ())  # what is announced may be delivered along with it
        patches: list[dict[str, Any]] = []
        delivered: list[tuple[Path, Any]] = []
        for change in result.incremental or ():
            path = [*self._paths[change.id], *(change.sub_path or ())]
            if hasattr(change, "items"):
                items: Sequence[Any] = change.items  # pyright: ignore[reportAttributeAccessIssue]  # a union told apart by its field
                start = self._count_sent(change.id, delivered)
                self._sent[change.id] = start + len(items)
                delivered += [([*path, start + at], item) for at, item in enumerate(items)]
                patch: dict[str, Any] = {"items": items, "path": [*path, start]}
            else:
                patch = {"data": change.data, "path": path}  # pyright: ignore[reportAttributeAccessIssue]  # as above
                delivered.append((path, patch["data"]))
            if label := self._labels.get(change.id):
                patch["label"] = label
            if change.errors:
                patch["errors"] = [format_error(error) for error in change.errors]
            patches.append(patch)
        self._measure(result.pending or (), delivered)
        patches += self._failures(result)
        payload: dict[str, Any] = {"incremental": patches} if patches else {}
        return {**payload, "hasNext": result.has_next}

    def _announce(self, pending: Iterable[Any]) -> None:
        for stream in pending:
            self._paths[stream.id] = stream.path
            if stream.label:
                self._labels[stream.id] = stream.label

    def _measure(self, pending: Iterable[Any], delivered: Sequence[tuple[Path, Any]]) -> None:
        for stream in pending:
            self._sent[stream.id] = self._count_sent(stream.id, delivered)

    def _count_sent(self, stream_id: str, delivered: Sequence[tuple[Path, Any]]) -> int:
        """Return how many items a stream has brought, those that came with its parent too."""
        if (count := self._sent.get(stream_id)) is not None:
            return count
        return _length(self._paths[stream_id], delivered)

    def _failures(self, result: SubsequentIncrementalExecutionResult) -> list[dict[str, Any]]:
        return [
            {
                "data": None,
                "path": [*self._paths[done.id]],
                "errors": [format_error(error) for error in done.errors],
            }
            for done in result.completed or ()
            if done.errors
        ]


def _length(path: Path, delivered: Iterable[tuple[Path, Any]]) -> int:
    """Return how many items of a list came with its parent (`initialCount`)."""
    for base, value in delivered:
        if list(path[: len(base)]) == list(base):
            found = _at(value, path[len(base) :])
            if isinstance(found, list):
                return len(found)
    return 0


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value
