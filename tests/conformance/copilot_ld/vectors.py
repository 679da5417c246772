"""Queries of vectors."""

import re
from typing import Any

from copilot_runtime.api import Embedder
from copilot_runtime.extensions.knowledge.identifiers import Identifier, parse_identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem
from copilot_runtime.storage import MemoryStorage
from tests.conformance.copilot_ld.cases import Case
from tests.conformance.copilot_ld.index import read_filter
from tests.extensions.knowledge.vectors.words import LetterEmbedder

_ITEM = re.compile(
    r"(?P<name>\w+)=(?:(?P<type>\w+\.\w+)\.\w+ )?(?P<vector>\[[^\]]*\])(?: (?P<tokens>\d+)tok)?"
)
_OTHERS = "common.Message"
_FIRST = "a=[1,0,0] 10tok"


async def answer(case: Case) -> Any:
    """Put vectors into an index and ask for some."""
    if isinstance(case.input, dict):
        return await _query(case.input)
    if case.feature.startswith("index.jsonl"):
        storage = MemoryStorage()
        await _make_index(_FIRST, storage)
        (key,) = await storage.list()
        return (await storage.get(key)).decode().rstrip("\n")
    return await _replace(case)


async def _query(fields: dict[str, Any]) -> Any:
    index = await _make_index(fields["data"], MemoryStorage())
    found = await index.query(fields["vectors"], _read_filter(fields.get("filter") or {}))
    return [[str(one), one.score] for one in found]


async def _replace(case: Case) -> Any:
    """Add an id twice, and look for it; for a reload, in another index of the same storage."""
    storage = MemoryStorage()
    index = VectorIndex(storage, _embedder())
    identifier = parse_identifier("a.B.1")
    for vector in ([1, 0], [0, 1]):
        await index.add(VectorItem(identifier, vector))
    if case.feature == "reload":
        index = VectorIndex(storage, _embedder())
    found = await index.query([[0, 1]])
    return [[str(one), one.score] for one in found]


async def _make_index(data: str, storage: MemoryStorage) -> VectorIndex:
    index = VectorIndex(storage, _embedder())
    for item in _ITEM.finditer(data):
        tokens = int(item["tokens"]) if item["tokens"] else None
        identifier = Identifier(item["type"] or _OTHERS, item["name"], tokens=tokens)
        numbers = [float(number) for number in item["vector"].strip("[]").split(",")]
        await index.add(VectorItem(identifier, numbers))
    return index


def _read_filter(fields: dict[str, Any]) -> Filter:
    """Read a filter; a prefix that is a whole type is one, as ours end at whole names."""
    prefix = fields.get("prefix") or ""
    if prefix.count(".") == 1 and "/" not in prefix:
        return read_filter({**fields, "prefix": ""}, type=prefix)
    return read_filter(fields)


def _embedder() -> Embedder:
    return LetterEmbedder()
