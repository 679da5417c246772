"""The doors of a server as a table of a document: entry points, and for whom they are."""

from collections.abc import Iterator

from tests.extensions.access.matrix.rows import ROWS
from tests.extensions.access.matrix.rows.asks import Kind

_FOR: dict[Kind, str] = {
    "own": "whoever signs in: what is theirs",
    "operator": "operators",
    "public": "everybody: it has nothing of anybody",
    "token": "whoever has the token of that one",
}
_FIRST = {
    "": "The page, its description",
    "a run": "The URL itself",
    "copilot": "analyst",
    "info": "agent",
    "agents": "actions",
    "annotate": "agent",
    "inspector-metadata": "agent",
    "transcribe": "agent",
    "memories": "threads",
    "realtime": "threads",
    "cpk-debug-events": "threads",
}
"""Paths that belong to others, by their first part."""


def doors_table() -> str:
    """Return a table with a line for each group of doors, and for whom they are."""
    groups: dict[tuple[str, Kind], list[str]] = {}
    for door, row in ROWS.items():
        groups.setdefault((name_group(door), row.kind), []).append(door)
    lines = ["| entry points | for |", "|---|---|", *_write_lines(groups)]
    return "\n".join(lines) + "\n"


def name_group(door: str) -> str:
    """Return what a door is listed under."""
    kind, _, rest = door.partition(" ")
    match kind:
        case "query" | "mutation" | "subscription":
            return f"GraphQL: {kind}"
        case "envelope":
            return "AG-UI at the URL itself"
        case "mcp":
            return "mcp"
        case "a2a":
            return "a2a"
        case "grpc":
            return "gRPC"
        case _ if rest.startswith("/"):
            return "Beside the URL"
        case _ if rest.startswith("?"):
            return "GraphQL: query"
        case _:
            first = rest.partition("/")[0]
            return _FIRST.get(first, first)


def _write_lines(groups: dict[tuple[str, Kind], list[str]]) -> Iterator[str]:
    for (_, kind), doors in sorted(groups.items()):
        names = " · ".join(f"`{door}`" for door in doors)
        yield f"| {names} | {_FOR[kind]} |"
