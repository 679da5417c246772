"""SPARQL queries: permitted kinds, limits, results, and the share of each user."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, cast

from pyoxigraph import Triple

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge.graph.terms import (
    InvalidQuery,
    QueryTooLarge,
    RefusedQuery,
    Term,
    suggest_prefix,
)

QueryKind = Literal["select", "ask", "construct", "describe"]
KINDS: tuple[QueryKind, ...] = ("select", "ask", "construct", "describe")

_ELSEWHERE = {
    "service": "SERVICE asks another server.",
    "from": "FROM names other data: a query sees the graph of its asker, and no other.",
    "graph": "GRAPH names other data: there is one graph, that of the asker.",
}
_UPDATES = frozenset(
    ["insert", "delete", "load", "clear", "drop", "create", "add", "move", "copy", "with", "using"]
)
"""Keywords of updates and federation, which no read-only query contains."""

_TOKEN = re.compile(
    r"""
      (?P<space> \s++ | \#[^\n\r]*+ )
    | (?P<iri> < (?: [^<>"{}|^`\\\x00-\x20] | \\u[0-9A-Fa-f]{4} | \\U[0-9A-Fa-f]{8} )*+ > )
    | (?P<text> \"{3} (?: \"{0,2} (?: [^"\\] | \\. ) )*+ \"{3}
              | '{3} (?: '{0,2} (?: [^'\\] | \\. ) )*+ '{3}
              | (?! "{3} | '{3} ) (?:
                " (?: [^"\\\n\r] | \\. )*+ " | ' (?: [^'\\\n\r] | \\. )*+ ' ) )
    | (?P<variable> [?$]\w++ )
    | (?P<language> @[A-Za-z]++(?:-[A-Za-z0-9]++)*+ )
    | (?P<number> (?: [0-9]++ \.? [0-9]*+ | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )? )
    | (?P<word> \w++ | : )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_RUN = re.compile(r"[\w.-]*+")
_LOCAL_NAME = re.compile(r":(?:(?:[\w:%]|\\.)(?:[\w:.%-]|\\.)*+)?", re.DOTALL)
_ELSEWHERE_WORD = re.compile(r"(?:true|false)?(service|graph|from)")
_WITH_SCHEME = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]*+://")
_PROLOGUE = ("prefix", "base", "version")
_POSITION = re.compile(r"(\d+):(\d+)$")
_LINE = re.compile(r"\r\n|\n|\r")
_PREFIXED_NAME = re.compile(r"((?:\w[\w.-]*)?):(?:[\w:.%-]|\\.)*$")
_BEFORE_IRI = frozenset("(,=!&|+-*/^")
"""Characters after which `<` begins an IRI and is not a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparqlLimits:
    """The limits of a query."""

    seconds: float = 10.0
    rows: int = 1000
    """Maximum number of solutions or triples; the result is truncated."""
    bytes: int = 1_000_000
    """Maximum size of all terms of the result; it is truncated."""
    memory: int = 512 * 1024 * 1024
    """Maximum memory of an evaluation beside the graph, in bytes (enforced on Linux)."""
    length: int = 20_000
    """Maximum number of characters of the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparqlResult:
    """The result of a query."""

    kind: QueryKind
    variables: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Term], ...] = ()
    """Solutions of SELECT: the term of each variable that has one."""
    triples: tuple[Triple, ...] = ()
    """Of CONSTRUCT and DESCRIBE."""
    boolean: bool | None = None
    """Of ASK."""
    cut: Literal["", "rows", "bytes"] = ""
    """The limit that truncated the result; empty if it is complete."""


def check_query(query: str, limits: SparqlLimits) -> QueryKind:
    """Return the kind of a query.

    Raises `Refused` for updates and federated queries, and `LimitExceeded` for a query that
    is too long. The syntax is checked only by the evaluation.
    """
    if len(query) > limits.length:
        raise QueryTooLarge(f"A query has at most {limits.length} characters, not {len(query)}.")
    words = [*_words(query)]
    for word in words:
        if word in _UPDATES:
            raise RefusedQuery(
                f"{word.upper()} would change data, which no query may.",
                hint="Ask with SELECT, ASK, CONSTRUCT or DESCRIBE.",
            )
        if elsewhere := _ELSEWHERE_WORD.match(word):
            raise RefusedQuery(_ELSEWHERE[elsewhere[1]], hint="Leave it out.")
    kind = next((word for word in words if word not in _PROLOGUE), "")
    if kind not in KINDS:
        raise InvalidQuery(
            f"A query begins with SELECT, ASK, CONSTRUCT or DESCRIBE, not with {kind.upper()!r}.",
            hint="For example: SELECT ?name WHERE { ?person a schema:Person ; schema:name ?name }",
        )
    return kind


def describe_syntax_error(reason: str, query: str, prefixes: Iterable[str]) -> InvalidQuery:
    """Return an error for a syntax error of pyoxigraph, with its position."""
    place, _, expected = reason.partition(": expected")
    position = _POSITION.search(place)
    if position is not None and "Prefix not found" in expected:
        line = [*_LINE.split(query), ""][int(position[1]) - 1]
        if name := _PREFIXED_NAME.search(line[: int(position[2]) - 1]):
            return InvalidQuery(
                f"There is no prefix {name[1]!r}.",
                hint=f"{suggest_prefix(name[1], prefixes)} Another one is declared before the "
                f"query: PREFIX {name[1]}: <https://…>",
            )
    return InvalidQuery(f"This is no SPARQL: {place[:300]}.")


def _words(query: str) -> Iterator[str]:
    """Yield the bare words of a query in lower case: keywords, and names of functions.

    Texts, IRIs, variables, prefixed names and comments are none, but for what could be read as a
    keyword as well: pyoxigraph needs no space behind one. Raises `Refused` for what could be read
    as an IRI, and as a comparison with a text or a comment behind it.
    """
    position, run_end = 0, 0
    brackets: list[str] = []
    before, pending = "", ""
    while match := _TOKEN.match(query, position):
        position, text = match.end(), match[0]
        if match.lastgroup == "space":
            continue
        if pending and text == "{":
            yield pending
        last, before, pending = before, match.lastgroup or "", ""
        if match.lastgroup == "word":
            if match.start() >= run_end:
                run_end = cast("re.Match[str]", _RUN.match(query, match.start())).end()
            if name := _LOCAL_NAME.match(query, run_end):
                prefix, position = query[match.start() : run_end].lower(), name.end()
                keyword = next(filter(_ELSEWHERE_WORD.match, prefix.split(".")), "")
                if keyword and not brackets and last not in ("prefix", "describe"):
                    yield keyword
                pending = keyword
            else:
                before = text.lower()
                yield before
        elif match.lastgroup == "iri":
            if brackets and brackets[-1] == "(" and last not in _BEFORE_IRI:
                yield from _read_comparison(text)
        elif match.lastgroup == "mark":
            before = text
            if text in "\"'":
                raise InvalidQuery("This is no SPARQL: a text begins that does not end.")
            if text in "([{":
                brackets.append(text)
            elif text in ")]}" and brackets:
                brackets.pop()


def _read_comparison(iri: str) -> Iterator[str]:
    """Tokenise `<…>` as a comparison, not an IRI: `<?b&&?c>` is between two operators."""
    if _WITH_SCHEME.match(iri):
        return
    if "#" in iri or "'" in iri:
        raise RefusedQuery(
            f"{iri[:200]} may be an IRI or a comparison.",
            hint="Write a space behind a < that compares, and an IRI with a prefix.",
        )
    yield from re.findall(r"service|graph|from", iri.lower())


MOST_AT_ONCE = 2
"""Maximum number of running queries of one user; below the total number of slots."""
MOST_WAITING = 20
"""Maximum number of waiting queries of one user."""


@dataclass(slots=True)
class _Share:
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    users: int = 0


class Shares:
    """Gives each user a few slots. Further queries wait for other queries of that user only."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def take(self, asker: str | None, seconds: float) -> AsyncGenerator[None]:
        """Acquire a slot of a user for a block; `None`, the system itself, needs no slot.

        Raises `LimitExceeded` if too many wait already, or after some seconds.
        """
        if asker is None:
            yield
            return
        share = self._shares.setdefault(asker, _Share())
        if share.users >= MOST_AT_ONCE + MOST_WAITING:
            raise LimitExceeded(
                f"{MOST_WAITING} of your queries wait for others of yours.",
                hint=f"Ask {MOST_AT_ONCE} at a time.",
            )
        share.users += 1
        try:
            try:
                async with asyncio.timeout(seconds):
                    await share.places.acquire()
            except TimeoutError:
                raise LimitExceeded(
                    f"The query has waited {seconds:g} seconds for others of yours.",
                    hint=f"Ask {MOST_AT_ONCE} at a time.",
                ) from None
            try:
                yield
            finally:
                share.places.release()
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[asker]
