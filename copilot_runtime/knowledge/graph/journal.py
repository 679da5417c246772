"""What the graph holds, in one JSON Lines object of a storage."""

from collections.abc import Iterable, Iterator

from copilot_runtime import concurrency
from copilot_runtime.errors import Misuse
from copilot_runtime.jsontext import dumps
from copilot_runtime.jsonvalue import JsonObject, get_text
from copilot_runtime.knowledge.graph.content import decode_rdfjs, encode_rdfjs, encode_triples
from copilot_runtime.knowledge.graph.table import Holder, TripleTable
from copilot_runtime.knowledge.graph.terms import parse_triples
from copilot_runtime.knowledge.identifiers import decode_identifier, encode_identifier
from copilot_runtime.storage import ObjectChanged, ObjectNotFound, Storage
from copilot_runtime.storage.jsonlines import salvage_lines

_SLACK = 1000
"""So many lines that nothing needs any more are left alone."""
_BYTES_AT_ONCE = 1 << 20


class Journal:
    """A line for each resource: `{"id", "identifier", "version", "triples"}`, these in N-Triples.

    A later line of an id replaces the earlier one at its place, or says that it is gone. A line
    that a crash has torn is none: its resource is taken in anew. Lines of Copilot-LD, with `quads`
    in place of `triples`, are read as well.
    """

    def __init__(self, storage: Storage, key: str) -> None:
        self._storage = storage
        self._key = key
        self._etag = ""
        self._end = 0
        self._last_line = b""
        self._lines = 0
        self._is_torn = False

    async def refresh(self, table: TripleTable) -> None:
        """Take in what was added since, by whichever process."""
        if await self._storage.etag(self._key) == self._etag:
            return
        start = self._end - len(self._last_line)
        try:
            data, etag = await self._storage.read(self._key, start)
            if start and not data.startswith(self._last_line):
                start = 0
                data, etag = await self._storage.read(self._key)
        except ObjectNotFound:
            start, data, etag = 0, b"", ""
        whole = data[: data.rfind(b"\n") + 1]
        skip = len(self._last_line) if start else 0
        if start:
            self._lines += await concurrency.call(_apply, table, whole[skip:])
        else:
            fresh = TripleTable()
            self._lines = await concurrency.call(_apply, fresh, whole)
            table.replace(fresh)
        self._is_torn = len(whole) < len(data)
        self._move_to(start + len(whole), etag, whole)

    async def append(self, lines: Iterable[JsonObject]) -> None:
        """Write lines at the end, of what the table has or is given then."""
        lines = [*lines]
        if not lines:
            return
        data = await concurrency.call(_encode_all, lines)
        if self._is_torn:
            data = b"\n" + data
        await self._storage.append(self._key, data)
        self._is_torn = False
        start = self._end - len(self._last_line)
        tail, etag = await self._storage.read(self._key, start)
        if tail == self._last_line + data:  # else somebody else writes, too, and `refresh` reads it
            self._lines += len(lines)
            self._move_to(start + len(tail), etag, tail)

    async def compact(self, table: TripleTable) -> None:
        """Write one line for each resource once most lines are old, unless somebody else writes."""
        if self._lines <= 2 * len(table) + _SLACK:
            return
        data = await concurrency.call(_write_all, table)
        try:
            etag = await self._storage.put(self._key, data, expected=self._etag)
        except ObjectChanged:
            return
        self._lines = len(table)
        self._move_to(len(data), etag, data)

    def _move_to(self, end: int, etag: str, lines: bytes) -> None:
        """Remember where reading goes on, behind some lines."""
        self._end, self._etag = end, etag
        self._last_line = lines[lines.rstrip(b"\n").rfind(b"\n") + 1 :]


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


def _apply(table: TripleTable, data: bytes) -> int:
    """Take in lines, and return how many there are."""
    count = 0
    for line in _read_lines(data):
        count += 1
        uri = get_text(line, "id")
        if line.get("deleted"):
            table.remove(uri)
            continue
        try:
            holder = decode_line(line, table)
        except Misuse:
            continue
        table.put(uri, holder)
    return count


def _read_lines(data: bytes) -> Iterator[JsonObject]:
    """Yield the objects of lines, a few at a time: all at once would take as much memory again."""
    start = 0
    while start < len(data):
        stop = data.find(b"\n", start + _BYTES_AT_ONCE) + 1 or len(data)
        yield from salvage_lines(data[start:stop])
        start = stop


def _split(line: str) -> list[str]:
    parts = line.removesuffix(" .").split(" ", 2)
    if len(parts) != 3 or not line.startswith("<"):
        raise Misuse("A line of the graph has no triple.")
    return parts


def _encode_all(lines: Iterable[JsonObject]) -> bytes:
    return b"".join(dumps(line) + b"\n" for line in lines)


def _write_all(table: TripleTable) -> bytes:
    return _encode_all(encode_line(holder, table) for holder in table.all_holders())
