"""Characters of the symbol fonts of office programs, whose codes are not Unicode, and formulas."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from copilot_runtime.extensions.knowledge.office.package import get_attribute, get_name

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_ASCII = {code: chr(code) for code in range(0x20, 0x41)}
_GREEK = dict(
    zip(
        b"ABCDEFGHIKLMNOPQRSTUWXYZabcdefghijklmnopqrstuvwxyz",
        "ΑΒΧΔΕΦΓΗΙΚΛΜΝΟΠΘΡΣΤΥΩΞΨΖαβχδεφγηιϕκλμνοπθρστυϖωξψζ",
        strict=True,
    )
)
_SIGNS = dict(
    zip(
        bytes.fromhex("a0a2a3a5abacadaeafb0b1b2b3b4b6b7b8b9babbbcc6ced6d7dbded2d3d4e5f2"),
        "€\u2032≤∞↔←↑→↓°±″≥\u00d7∂•÷≠≡≈…∅∈√⋅⇔⇒®©™∑∫",
        strict=True,
    )
)
_FONTS: Mapping[str, Mapping[int, str]] = {
    "symbol": {**_ASCII, **_GREEK, **_SIGNS},
    "wingdings": dict(
        zip(
            bytes.fromhex("4a4c6c6e6f71727678a7a8d8dfe0e1e2e8effbfcfdfe"),
            "☺☹●■☐❑❒❖☒▪☐➢←→↑↓→⇦✗✓☒☑",
            strict=True,
        )
    ),
    "wingdings 2": dict(zip(bytes.fromhex("4f50515253a3"), "✗✓☒☑☒☐", strict=True)),
}
UNKNOWN = "\ufffd"


def read_symbol(element: "Element") -> str:
    """Return the character of a `w:sym`, or `UNKNOWN`."""
    try:
        code = int(get_attribute(element, "char") or "", 16)
    except ValueError:
        return UNKNOWN
    font = (get_attribute(element, "font") or "").lower()
    if font in _FONTS:
        return _FONTS[font].get(code & 0xFF, UNKNOWN)
    is_private = not 0x20 <= code < 0xD800
    return UNKNOWN if is_private else chr(code)


def write_formula(element: "Element") -> str:
    """Return a formula as a line: `(a+b)/2`, `x^2`, `x_1`."""
    parts = [(get_name(it), write_formula(it)) for it in element]
    inner = dict(parts)
    match get_name(element):
        case "t":
            return element.text or ""
        case "f":
            both = (inner.get(name, "") for name in ("num", "den"))
            return "/".join(it if len(it) < 2 else f"({it})" for it in both)
        case "sSup":
            return f"{inner.get('e', '')}^{inner.get('sup', '')}"
        case "sSub":
            return f"{inner.get('e', '')}_{inner.get('sub', '')}"
        case "rad":
            return f"\u221a({inner.get('e', '')})"
        case _:
            return "".join(text for _, text in parts)
