"""The log of the graph index: one JSON Lines object in a storage."""

from collections.abc import Iterable

from copilot_runtime.base import concurrency
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.extensions.knowledge.graph.content import (
    decode_rdfjs,
    encode_rdfjs,
    encode_triples,
)
from copilot_runtime.extensions.knowledge.graph.table import Holder, TripleTable
from copilot_runtime.extensions.knowledge.graph.terms import parse_triples
from copilot_runtime.extensions.knowledge.identifiers import decode_identifier, encode_identifier
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLines, encode_lines, salvage_lines


class GraphLog:
    """A line for each resource: `{"id", "identifier", "version", "triples"}`, these in N-Triples.

    A later line of an id replaces the earlier one at its place, or says that it is gone. A line
    that a crash has torn is none: its resource is taken in anew. Lines of Copilot-LD, with `quads`
    in place of `triples`, are read as well.
    """

    def __init__(self, storage: Storage, key: str) -> None:
        self._lines = JsonLines(storage, key)

    async def refresh(self, table: TripleTable) -> None:
        """Apply the lines added by any process since the last read."""
        lines = await self._lines.read_new()
        if lines.is_anew:
            fresh = TripleTable()
            await concurrency.call(_apply, fresh, lines.data)
            table.replace(fresh)
        elif lines.data:
            await concurrency.call(_apply, table, lines.data)
        self._lines.advance(lines)

    async def append(self, lines: Iterable[JsonObject]) -> None:
        """Append lines."""
        data: bytes = await concurrency.call(encode_lines, lines)
        if not data:
            return
        await self._lines.append(data)
        new = await self._lines.read_new()
        if new.data == data:  # else another process appended, too, and `refresh` reads its lines
            self._lines.advance(new)

    async def compact(self, table: TripleTable) -> None:
        """Rewrite the log with one line per resource if most lines are obsolete."""
        if self._lines.is_long(len(table)):
            await self._lines.rewrite(lambda: _write_all(table))


def encode_line(holder: Holder, table: TripleTable) -> JsonObject:
    """Return the line of a resource."""
    line: JsonObject = {
        "id": str(holder.identifier),
        "identifier": encode_identifier(holder.identifier),
        "version": holder.version,
        "triples": "\n".join(table.decode(holder.rows)),
    }
    return {**line, "error": holder.error} if holder.error else line


def decode_line(line: JsonObject, table: TripleTable) -> Holder:
    """Read the line of a resource. Raises `Misuse`."""
    identifier = decode_identifier(line.get("identifier"))
    if "quads" in line:
        texts = encode_triples(decode_rdfjs(line["quads"]), str(identifier))
    else:
        texts = [_split(text) for text in get_text(line, "triples").split("\n") if text]
    return Holder(
        identifier, get_text(line, "version"), table.encode(texts), get_text(line, "error")
    )


def encode_copilot_ld_line(holder: Holder, table: TripleTable) -> JsonObject:
    """Return the line that Copilot-LD has for a resource in its `graphs/index.jsonl`."""
    identifier = {
        name: value for name, value in encode_identifier(holder.identifier).items() if value != ""
    }
    quads = encode_rdfjs(parse_triples(table.decode(holder.rows)))
    return {"id": str(holder.identifier), "identifier": identifier, "quads": quads}


def delete_line(uri: str) -> JsonObject:
    """Return the line that says that a resource is gone."""
    return {"id": uri, "deleted": True}


def _apply(table: TripleTable, data: bytes) -> None:
    """Apply lines to a table."""
    for line in salvage_lines(data):
        uri = get_text(line, "id")
        if line.get("deleted"):
            table.remove(uri)
            continue
        try:
            holder = decode_line(line, table)
        except Misuse:
            continue
        table.put(uri, holder)


def _split(line: str) -> list[str]:
    parts = line.removesuffix(" .").split(" ", 2)
    if len(parts) != 3 or not line.startswith("<"):
        raise Misuse("A line of the graph has no triple.")
    return parts


def _write_all(table: TripleTable) -> bytes:
    return encode_lines(encode_line(holder, table) for holder in table.all_holders())
