"""The styles of Word documents, and texts that are white on white or not shown."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from copilot_runtime.extensions.knowledge.office.package import (
    find_child,
    get_attribute,
    get_name,
    get_number,
    is_on,
)

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_WHITE = re.compile("[Ff][A-Fa-f]" * 3)


@dataclass(frozen=True, slots=True)
class Style:
    """The properties of a style, including those that it inherits."""

    name: str = ""
    level: int | None = None
    """The level of a heading."""
    list: "Element | None" = None
    is_hidden: bool = False
    color: str = ""
    """The colour of its text, in hexadecimal digits."""
    is_shaded: bool = False
    """`True` if it has a background."""


def read_styles(root: "Element | None") -> dict[str, Style]:
    """Return the styles by identifier, with what they inherit."""
    elements = () if root is None else root.iterchildren("{*}style")
    found = {get_attribute(it, "styleId") or "": it for it in elements}
    styles: dict[str, Style] = {}
    for id, element in found.items():
        name = get_attribute(find_child(element, "name"), "val") or ""
        level: int | None = None
        numbers: Element | None = None
        vanish: Element | None = None
        color, is_shaded = "", False
        here: Element | None = element
        for _ in range(20):  # styles may be based on each other in a circle
            if here is None:
                break
            if level is None:
                called = get_attribute(find_child(here, "name"), "val") or ""
                outline = find_child(here, "pPr", "outlineLvl")
                if match := _HEADING.fullmatch(called):
                    level = int(match[1])
                elif outline is not None:
                    level = get_number(outline, "val", 9) + 1
            if numbers is None:
                numbers = find_child(here, "pPr", "numPr")
            if vanish is None:
                vanish = find_child(here, "rPr", "vanish")
            color = color or get_attribute(find_child(here, "rPr", "color"), "val") or ""
            is_shaded |= any(_is_shaded(find_child(here, it)) for it in ("pPr", "rPr"))
            here = found.get(get_attribute(find_child(here, "basedOn"), "val") or "")
        styles[id] = Style(name, level, numbers, is_on(vanish), color, is_shaded)
    return styles


def is_white(run: "Element", style: Style, styles: "Mapping[str, Style]") -> bool:
    """Return whether a run of a paragraph in some style is white on the white of the page."""
    properties = find_child(run, "rPr")
    own = styles.get(get_attribute(find_child(properties, "rStyle"), "val") or "", Style())
    color = get_attribute(find_child(properties, "color"), "val") or own.color or style.color
    if not _WHITE.fullmatch(color):
        return False
    if own.is_shaded or style.is_shaded or _is_shaded(properties):
        return False
    return not any(map(_may_be_shaded, run.iterancestors()))


def _may_be_shaded(element: "Element") -> bool:
    """Return whether an element may have another background than white."""
    match get_name(element):
        case "txbxContent":  # its shape may have one
            return True
        case "tbl":  # and so may its style
            properties = find_child(element, "tblPr")
            return _is_shaded(properties) or find_child(properties, "tblStyle") is not None
        case "p" | "tc" as name:
            return _is_shaded(find_child(element, f"{name}Pr"))
        case _:
            return False


def is_hidden_shape(element: "Element") -> bool:
    """Return whether an element is a shape that the file does not show, such as a text box."""
    if get_name(element) not in ("anchor", "inline", "wsp", "shape", "rect", "roundrect"):
        return False
    properties = (find_child(element, name) for name in ("docPr", "cNvPr"))
    if any(get_attribute(it, "hidden") in ("1", "true") for it in properties):
        return True
    return "visibility:hidden" in element.get("style", "").replace(" ", "")


def find_unused_margins(document: "Element", settings: "Element | None") -> set[str]:
    """Return the identifiers of headers and footers of pages that are not set apart."""
    switches = {
        "first": any(map(is_on, document.iter("{*}titlePg"))),
        "even": is_on(find_child(settings, "evenAndOddHeaders")),
    }
    ids: dict[bool, set[str]] = {True: set(), False: set()}
    for it in document.iter("{*}headerReference", "{*}footerReference"):
        is_used = switches.get(get_attribute(it, "type") or "", True)
        ids[is_used].add(get_attribute(it, "id") or "")
    return ids[False] - ids[True]


def has_background(root: "Element") -> bool:
    """Return whether a part gives a page a colour, or a picture or shape behind its texts."""
    shapes = root.iter("{*}anchor", "{*}shape", "{*}rect")
    is_behind = any(
        it.get("behindDoc") in ("1", "true") or "z-index:-" in it.get("style", "") for it in shapes
    )
    return is_behind or find_child(root, "background") is not None


def _is_shaded(properties: "Element | None") -> bool:
    """Return whether a text or a cell may have another background than white."""
    shading = find_child(properties, "shd")
    fill = get_attribute(shading, "fill") or ""
    pattern = get_attribute(shading, "val") or "clear"
    is_filled = bool(fill) and fill != "auto" and not _WHITE.fullmatch(fill)
    has_pattern = shading is not None and pattern not in ("clear", "nil")
    return is_filled or has_pattern or find_child(properties, "highlight") is not None
