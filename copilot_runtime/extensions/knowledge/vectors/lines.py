"""Encode the rows of a vector table as lines, in the format of Copilot-LD."""

from collections.abc import Iterable, Iterator

import numpy as np
import orjson

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.extensions.knowledge.identifiers import decode_identifier, encode_identifier
from copilot_runtime.extensions.knowledge.vectors.segment import Row
from copilot_runtime.storage.jsonlines import salvage_lines

RowChange = tuple[str, Row | None]
"""A URI and its new row, or `None` for a removal."""


def encode_changes(changes: Iterable[RowChange]) -> bytes:
    """Return one line for each row or removal."""
    return b"".join(
        (_encode_row(row) if row else orjson.dumps({"id": uri, "removed": True})) + b"\n"
        for uri, row in changes
    )


def decode_changes(data: bytes, dimensions: int | None) -> Iterator[RowChange]:
    """Yield the changes of lines; lines without a vector of the right length are skipped."""
    for line in salvage_lines(data):
        if line.get("removed"):
            yield get_text(line, "id"), None
        elif row := _decode_row(line):
            dimensions = dimensions or len(row.vector)
            if len(row.vector) == dimensions:
                yield str(row.identifier), row


def _encode_row(row: Row) -> bytes:
    """Return a row as a line, with the version of its resource, if any."""
    identifier = encode_identifier(row.identifier)
    if not row.identifier.parent:
        del identifier["parent"]
    line: JsonObject = {"id": str(row.identifier), "identifier": identifier}
    if row.version:
        line["version"] = row.version
    numbers = orjson.dumps(row.vector, option=orjson.OPT_SERIALIZE_NUMPY)
    # as JavaScript writes them: 1 and not 1.0
    numbers = numbers.replace(b".0,", b",").replace(b".0]", b"]")
    return orjson.dumps(line)[:-1] + b',"vector":' + numbers + b"}"


def _decode_row(line: JsonObject) -> Row | None:
    try:
        vector = np.array(line["vector"], np.float32)
        identifier = decode_identifier(line["identifier"])
    except (KeyError, TypeError, ValueError, Misuse):
        return None
    return Row(identifier, vector, get_text(line, "version")) if vector.ndim == 1 else None
