"""Queries of plain and buffered indexes."""

import re
from typing import Any

from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import BufferedIndex, Filter, IndexBase, Item
from copilot_runtime.storage import MemoryStorage
from tests.conformance.copilot_ld.cases import Case

TYPE = "test.Item"

_ITEM = re.compile(r"([A-Za-z_-]+)(\d*)")


async def answer(case: Case) -> Any:
    """Put items into an index and ask for them with a filter."""
    index = make_index(case)
    if not isinstance(case.input, dict):
        found = await index.get(case.input)
        return [identifier.name for identifier in found]
    await index.add(*(Item(identifier) for identifier in read_items(case.input["items"])))
    if "flush" in case.feature and isinstance(index, BufferedIndex):
        return await index.flush()
    results = await index.query(filter=read_filter(case.input.get("filter") or {}))
    await index.aclose()
    return [identifier.name for identifier in results]


def make_index(case: Case) -> IndexBase:
    kind = BufferedIndex if "uffer" in case.feature else IndexBase
    return kind(MemoryStorage())


def read_items(items: Any) -> list[Identifier]:
    """Read items such as `a10 b20 c5`: a name, and how many tokens it has."""
    if isinstance(items, str):
        return [
            Identifier(TYPE, name, tokens=int(tokens) if tokens else None)
            for name, tokens in _ITEM.findall(items)
        ]
    return [
        Identifier(TYPE, item.get("name") or item.get("id"), tokens=item.get("tokens"))
        for item in items
    ]


def read_filter(fields: dict[str, Any], **others: Any) -> Filter:
    """Read a filter: numbers may be texts, as they are in Copilot-LD's messages."""
    prefix = fields.get("prefix") or ""
    threshold = fields.get("threshold")
    return Filter(
        prefix=prefix if not prefix or "." in prefix else f"{TYPE}.{prefix}",
        threshold=None if threshold is None else float(threshold),
        limit=int(fields.get("limit") or 0),
        max_tokens=int(fields.get("max_tokens") or 0),
        **others,
    )
