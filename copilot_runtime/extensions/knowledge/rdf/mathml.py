"""Write the formulas of MathML in one line: without signs, `1/2` would be the number 12."""

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_SIGNS = {
    "mfrac": ("/", ""),
    "msup": ("^", ""),
    "mover": ("^", ""),
    "msub": ("_", ""),
    "munder": ("_", ""),
    "msubsup": ("_", "^", ""),
    "munderover": ("_", "^", ""),
    "mroot": ("^(1/", ")"),
}
"""Elements whose children stand above each other, and the signs behind each child."""


def write_formulas(root: "Element") -> None:
    """Add the signs of a line to the fractions, powers, roots and matrices of a page."""
    for it in root.iter("mtd", "mspace"):
        it.tail = " "
    for it in root.iter("msqrt"):
        is_long = _is_long(it)
        it.text = ("\u221a(" if is_long else "\u221a") + (it.text or "").strip()
        if is_long:
            it[-1].tail = ")"
    for it in root.iter("msqrt", *_SIGNS):
        if it.getnext() is not None and not (it.tail or "").strip():
            it.tail = " "
    for it in root.iter(*_SIGNS):
        signs, before = _SIGNS[it.tag], it.getprevious()
        if len(it) != len(signs):
            continue
        if it.tag == "mfrac" and before is not None and not (before.tail or "").strip():
            before.tail = " "
        for child, sign in zip(it, signs, strict=True):
            following = child.getnext()
            is_accent = it.tag == "mover" and following is not None and following.tag == "mo"
            is_long = _is_long(child)
            child.text = ("(" if is_long else "") + (child.text or "").strip()
            child.tail = (")" if is_long else "") + ("" if is_accent else sign)


def _is_long(element: "Element") -> bool:
    """Return whether a part of a formula has several symbols."""
    some = [*islice(element.iter(), 50)]  # of those in each other, all would take long
    return len(some) == 50 or sum(bool((it.text or "").strip()) for it in some) > 1
