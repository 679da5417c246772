"""Styles of cells in workbooks: struck-out and invisible values."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from copilot_runtime.base.office import OfficeFile

_WHITE = "FFFFFF"


class Look(NamedTuple):
    """The style of a cell, as far as it marks its value."""

    is_faint: bool
    """`True` if its letters have the colour of their background, or less than 2.5 pt."""
    is_struck: bool


def list_looks(file: OfficeFile, part: str) -> Iterator[tuple[str, Look]]:
    """Yield the looks that are not those of plain values, by the number of a cell's style."""
    section, number = "", -1
    fonts: list[dict[str, str]] = []
    fills: list[str] = []
    for name, attributes in file.iterate_tags(part):
        if name in ("fonts", "fills", "borders", "cellStyleXfs", "cellXfs", "cellStyles", "dxfs"):
            section = name
        elif section == "fonts":
            if name == "font":
                fonts.append({})
            elif fonts:
                fonts[-1][name] = attributes.get("val") or _read_color(attributes)
        elif section == "fills":
            if name == "fill":
                fills.append(_WHITE)
            elif name == "fgColor" and fills and fills[-1] == "solid":
                fills[-1] = _read_color(attributes)
            elif name == "gradientFill" or attributes.get("patternType", "none") != "none":
                fills[-1] = attributes.get("patternType", name)
        elif section == "cellXfs" and name == "xf":
            number += 1
            at, behind = (_read_number(attributes.get(it), 0) for it in ("fontId", "fillId"))
            font = fonts[int(at)] if 0 <= at < len(fonts) else {}
            fill = fills[int(behind)] if 0 <= behind < len(fills) else _WHITE
            is_faint = font.get("color") == fill or _read_number(font.get("sz"), 11) < 2.5
            is_struck = font.get("strike", "0") not in ("0", "false")
            if is_faint or is_struck:
                yield str(number), Look(is_faint, is_struck)


def _read_number(text: str | None, default: float) -> float:
    with suppress(TypeError, ValueError):
        return float(text or "")
    return default


def _read_color(attributes: Mapping[str, str]) -> str:
    color = attributes.get("rgb", "")[-6:].upper()
    is_white = attributes.get("theme") == "0" and "tint" not in attributes
    if is_white or attributes.get("indexed") in ("1", "9"):
        return _WHITE
    return color or " ".join(f"{name}={value}" for name, value in sorted(attributes.items()))
