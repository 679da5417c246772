"""The texts of charts and diagrams, which office documents store in parts of their own."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lxml import etree

from copilot_runtime.extensions.knowledge.office.package import (
    Package,
    find_child,
    get_attribute,
    get_name,
)

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_DATE = re.compile(r"[^\[\"\\]*[dy]", re.IGNORECASE)
"""The format of numbers that are days."""
_DAYS = 2_958_466


def read_drawing(package: Package, part: str, element: "Element") -> str:
    """Return the text of the chart or diagram to which an element of a part refers.

    It is empty if there is none that can be read.
    """
    kind = get_name(element)
    name = {"chart": "id", "relIds": "dm"}.get(kind, "")
    relation = package.read_relations(part).get(get_attribute(element, name) or "")
    if relation is None:
        return ""
    key = (kind, relation.target)
    if key not in package.drawings:
        package.drawings[key] = _read_part(package, *key)
    return package.drawings[key]


def read_paragraphs(element: "Element") -> list[str]:
    """Return the paragraphs of an element that are not blank."""
    texts = ("".join(it.text or "" for it in one.iter("{*}t")) for one in element.iter("{*}p"))
    return [text.strip() for text in texts if text.strip()]


def _read_part(package: Package, kind: str, part: str) -> str:
    try:
        root = package.parse(part)
    except etree.XMLSyntaxError:
        root = None
    if root is None:
        return ""
    return "\n".join(_read_chart(root) if kind == "chart" else read_paragraphs(root))


def _read_chart(root: "Element") -> Iterator[str]:
    """Yield the titles of a chart, and a line for each of its series."""
    for title in root.iter("{*}title"):
        if text := " ".join(read_paragraphs(title)) or " ".join(_read_points(title)):
            yield text
    for series in root.iter("{*}ser"):
        name = " ".join(_read_points(find_child(series, "tx")))
        places, values = (
            _read_points(next(series.iterchildren(*(f"{{*}}{it}" for it in names)), None))
            for names in (("cat", "xVal"), ("val", "yVal"))
        )
        pairs = (f"{places[at]}: {it}" if at < len(places) else it for at, it in enumerate(values))
        if text := "; ".join(pairs):
            yield f"{name}: {text}" if name else text


def _read_points(source: "Element | None") -> list[str]:
    """Return the values that a chart has stored, in order; numbers that are days as dates."""
    if source is None:
        return []
    format = "".join(it.text or "" for it in source.iter("{*}formatCode"))
    points: dict[str, list[str]] = {}
    for value in source.iter("{*}v"):
        key = get_attribute(value.getparent(), "idx") or "0"
        points.setdefault(key, []).insert(0, (value.text or "").strip())
    texts = map(" ".join, points.values())
    return [_read_day(it) if _DATE.match(format) else it for it in texts]


def _read_day(text: str) -> str:
    is_day = text.isdecimal() and len(text) < 8 and int(text) < _DAYS
    return str((datetime(1899, 12, 30) + timedelta(int(text))).date()) if is_day else text
