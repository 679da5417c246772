"""How a door is asked: a row of the matrix, and what makes one. `<thread>` is an id of Ann's."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import quote

from tests.extensions.access.matrix.callers import Asker, Reply
from tests.extensions.access.matrix.world import Things

Kind = Literal["own", "public", "operator", "token"]
Ask = Callable[[Asker, Things], Awaitable[Reply]]


@dataclass(frozen=True)
class Row:
    """One door. `shows` is the word that Ann finds behind it, so that it is known to be open.

    `kind` is for whom it is: for whoever has something there, for everybody, for operators, or for
    whoever has the token of that door alone.
    """

    ask: Ask
    shows: str = ""
    kind: Kind = "own"
    changes: bool = False
    """Whether Ann's own request would take away or change what she has."""


def fill(text: str, things: Things, *, is_path: bool = False) -> str:
    """Return a text with ids in the places that are named in it."""
    for one in fields(things):
        value: str = getattr(things, one.name)
        if is_path:
            value = quote(value, safe="")
        text = text.replace(f"<{one.name}>", value)
    return text


def insert_ids(body: Any, things: Things) -> Any:
    return (
        body
        if body is None or isinstance(body, bytes)
        else json.loads(fill(json.dumps(body), things))
    )


def http(
    method: str,
    path: str,
    body: Any = None,
    *,
    root: bool = False,
    endless: bool = False,
    **headers: str,
) -> Ask:
    """Return what sends a request."""

    async def ask(asker: Asker, things: Things) -> Reply:
        place = fill(path, things, is_path=True)
        more = {name: fill(value, things) for name, value in headers.items()}
        given = insert_ids(body, things)
        return await asker.ask(method, place, given, root=root, is_endless=endless, **more)

    return ask


def get(path: str, shows: str = "", kind: Kind = "own", **options: Any) -> Row:
    """Return a GET below the URL."""
    return Row(http("GET", path, **options), shows, kind)


def post(path: str, body: Any = None, shows: str = "", kind: Kind = "own", **options: Any) -> Row:
    changes = options.pop("changes", False)
    return Row(http("POST", path, body, **options), shows, kind, changes)


def root(path: str, method: str = "GET") -> Row:
    return Row(http(method, path, root=True, accept="text/html"), "", "public")


def envelope(
    method: str, body: Any = None, shows: str = "", *, changes: bool = False, **params: Any
) -> Row:
    value: dict[str, Any] = {"method": method, "params": params}
    return post("", value if body is None else {**value, "body": body}, shows, changes=changes)


def gql(
    query: str, shows: str = "", kind: Kind = "own", *, changes: bool = False, **variables: Any
) -> Row:
    return post("", {"query": query, "variables": variables}, shows, kind, changes=changes)


def subscribe(query: str, shows: str = "", kind: Kind = "own", **variables: Any) -> Row:
    async def ask(asker: Asker, things: Things) -> Reply:
        given = insert_ids(variables, things)
        return await asker.subscribe(query, given, b'"next"', is_quiet=not shows)

    return Row(ask, shows, kind)
