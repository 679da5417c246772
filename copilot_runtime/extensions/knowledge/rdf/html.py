"""Parse HTML pages, also malformed ones, into trees of elements."""

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from lxml import etree

from copilot_runtime.base.errors import LimitExceeded

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

MOST_BYTES = 16 * 1024 * 1024
"""Maximum size of a page in bytes; its tree takes ten times as much memory."""
_MOST_ATTRIBUTES = 2000
"""Maximum attributes of an element: libxml2 compares all pairs, a minute for 200,000."""

_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_TAG = re.compile(rb"""<[A-Za-z](?:[^>=]++|=\s*+(?:"[^"]*+"?+|'[^']*+'?+)?+)*+""")
_VALUE = re.compile(rb"""=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>]*+)""")

_BLOCK_NAMES = (
    "address article aside blockquote br caption dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li main nav ol optgroup option p pre "
    "search section summary table tbody td tfoot th thead title tr ul"
)
BLOCKS = frozenset(_BLOCK_NAMES.split())
"""Block elements, whose edges separate words."""
UNSEEN = frozenset(("head", "noscript", "script", "style", "svg", "template"))

_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " "})
_SPACES = re.compile(r"[ \t\n\f\r]+")


def parse_html(data: bytes) -> "Element | None":
    """Return the root element of a page, or `None` if it is empty.

    Nothing is loaded from elsewhere. Raises `LimitExceeded` for what would take too long.
    """
    if len(data) > MOST_BYTES:
        raise LimitExceeded(f"The page is larger than {MOST_BYTES // 1024 // 1024} MB.")
    text = decode_text(data, _META).encode()
    for tag in _TAG.finditer(text):
        if len(tag[0]) > 2 * _MOST_ATTRIBUTES and _count_attributes(tag[0]) > _MOST_ATTRIBUTES:
            raise LimitExceeded(f"An element has more than {_MOST_ATTRIBUTES} attributes.")
    parser = etree.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True, huge_tree=True
    )
    try:
        root = cast("Element | None", etree.fromstring(text, parser))
    except etree.XMLSyntaxError:  # a page of nothing but comments
        return None
    if any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log):
        raise LimitExceeded("The elements of the page are nested too deeply.")
    return root


def decode_text(data: bytes, declaration: re.Pattern[bytes] | None = None) -> str:
    """Return bytes as text: by their mark, by what they declare, else UTF-8, else Windows-1252."""
    for bom, encoding in _BOMS.items():
        if data.startswith(bom):
            return data.decode(encoding, "replace").removeprefix("\ufeff")
    found = declaration.search(data[:4096]) if declaration else None
    label = found[1].decode().lower() if found else "utf-8"
    for encoding in dict.fromkeys((label, "utf-8")):
        # pages that say Latin-1 mean the code page of Windows, and UTF-16 they cannot mean
        # https://encoding.spec.whatwg.org/#names-and-labels
        named = "utf-8" if "utf-16" in encoding else encoding
        if named in ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii"):
            break
        try:
            return data.decode(named)
        except (LookupError, ValueError):
            continue
    return data.decode("cp1252", "replace")


def clean_text(text: str) -> str:
    """Return a text with straight quotation marks and one space for each run of white space."""
    return _SPACES.sub(" ", text.translate(_QUOTES))


def element_text(element: "Element") -> str:
    """Return the visible text of an element as one line."""
    if not len(element):
        return clean_text(element.text or "").strip()
    return clean_text("".join(text_pieces(element))).strip()


def text_pieces(element: "Element") -> Iterator[str]:
    """Yield the texts in an element, with a space at the edges of blocks."""
    yield element.text or ""
    stack = [*reversed(element)]
    closed: dict[Element, str] = {}
    while stack:
        inner = stack.pop()
        if inner in closed:
            yield closed.pop(inner)
            continue
        tag = inner.tag
        space = " " if tag in BLOCKS else ""
        tail = space + (inner.tail or "")
        if tag in UNSEEN:
            yield tail
            continue
        yield space + (inner.text or "")
        if len(inner):
            closed[inner] = tail
            stack += (inner, *reversed(inner))
        else:
            yield tail


def _count_attributes(tag: bytes) -> int:
    """Return an upper estimate of the number of attributes of a tag."""
    return len(_VALUE.sub(b" ", tag).replace(b"/", b" ").split())
