"""Parse HTML pages, also malformed ones, into trees of elements."""

import codecs
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from lxml import etree

from copilot_runtime.base import encodings
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.extensions.knowledge.rdf.mathml import write_formulas

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

MOST_BYTES = 16 * 1024 * 1024
"""Maximum size of a page in bytes; its tree takes ten times as much memory."""
_MOST_ATTRIBUTES = 2000
"""Maximum attributes of an element: libxml2 compares all pairs, a minute for 200,000."""

_DECLARATION = re.compile(
    rb"(?:<\?xml[^>]{0,100}?encoding|<meta[^>]{0,200}?charset)\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)",
    re.IGNORECASE,
)
_CODECS = re.compile(
    r"utf-8|ascii|latin|iso8859|cp\d|koi8|mac|gb|big5|euc|shift|iso2022_jp$|hz|tis"
)
"""Codecs of pages; Python has others, which are slow or no encodings of texts."""
_WEB_CODECS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
"""The codecs that browsers take for others: https://encoding.spec.whatwg.org/#names-and-labels"""
_TAG = re.compile(rb"""<[A-Za-z](?:[^>=]++|=\s*+(?:"[^"]*+"?+|'[^']*+'?+)?+)*+""")
_VALUE = re.compile(rb"""=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>]*+)""")
_BETWEEN_ATTRIBUTES = b" =/\n\t\r\f\v"

_BLOCK_NAMES = (
    "address article aside blockquote br caption center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol "
    "optgroup option p pre search section summary table tbody td tfoot th thead title tr ul"
)
BLOCKS = frozenset(_BLOCK_NAMES.split())
"""Block elements, whose edges separate words."""
APART = ("button", "label", "marquee", "output")
"""Other elements that browsers draw apart from what is beside them."""
STRUCK = ("del", "s", "strike")
_IN_HEAD = ("base", "link", "meta", "noscript", "script", "style", "template", "title")
_FRAMES = ("iframe", "frame")
_FALLBACKS = ("audio", "canvas", "datalist", "iframe", "meter", "noembed", "progress", "video")
_IN_FORMULAS = ("annotation", "annotation-xml", "mphantom")
_OTHERS = ("head", "noscript", "rp", "rt", "script", "style", "svg", "template")
UNSEEN = frozenset((*_FALLBACKS, *_IN_FORMULAS, *_OTHERS))
"""Elements without texts of their own, such as the pronunciation of characters."""
VALUED = ("img", "input", "option")
"""Elements that show what is in an attribute."""
_WITHOUT_TEXT = ("color", "file", "hidden", "password", "range")
"""Types of inputs that do not show their value."""

_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " "})
_SPACES = re.compile(r"[\t\n\f\r][ \t\n\f\r]*| [ \t\n\f\r]+")
"""White space that is more than a single space."""
_EDGES = re.compile(r"\v+")
_STYLE_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_DISPLAY = re.compile(
    r"(?:^|;)\s*(display|visibility|content-visibility|color|background|background-color|font-size)"
    r"\s*:\s*([^;!]+)"
)
"""Declarations of a style, of which the last one of a property counts."""
_STYLE_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(.))", re.IGNORECASE | re.DOTALL)
"""A character that a style writes by its number, or behind a backslash."""
_NO_SIZE = re.compile(r"0(?:\.0+)?(?:px|pt|r?em|%)?")
_COLORS = {"white": "#ffffff", "black": "#000000"}
_RGB = re.compile(r"rgba?\(\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)\s*(?:[,/]\s*(?:1(?:\.0*)?|100%)\s*)?\)")
"""An opaque colour as numbers."""
_PRE = re.compile(r"white-space\s*:\s*(?:pre|break-spaces)")
_DOUBTFUL = re.compile(
    r"(?:^|;)\s*(?:(?:opacity|(?:max-)?height)\s*:\s*0(?![.\d])|transform\s*:\s*scale\(0"
    r"|(?:text-indent|left|top)\s*:\s*-\d{3}|color\s*:\s*transparent"
    r"|clip(?:-path)?\s*:\s*(?:rect\(\s*0|inset\(\s*(?:50|100)%))"
)
"""A style that shows no text, unless a script changes it."""
_DOUBTFUL_WORDS = ("<style", "opacity", "height:", "scale(0", ":-", ": -", "clip", "transparent")
_HIDING_RULE = re.compile(
    r"[.#]([\w-]+)\s*\{[^{}]*(?:display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0[;}\s])"
)


def parse_html(data: bytes) -> "tuple[Element | None, list[str]]":
    """Return the root element of a page, or `None` if it is empty, and warnings about its text.

    Nothing is loaded from elsewhere. Raises `LimitExceeded` for what would take too long.
    """
    if len(data) > MOST_BYTES:
        raise LimitExceeded(f"The page is larger than {MOST_BYTES // 1024 // 1024} MB.")
    page, warnings = decode_text(data, is_page=True)
    text = page.encode()
    # most pages have fewer marks between attributes than an element may have of these
    has_many = len(text) - len(text.translate(None, _BETWEEN_ATTRIBUTES)) > _MOST_ATTRIBUTES
    for tag in _TAG.finditer(text) if has_many else ():
        if len(tag[0]) > 2 * _MOST_ATTRIBUTES and _count_attributes(tag[0]) > _MOST_ATTRIBUTES:
            raise LimitExceeded(f"An element has more than {_MOST_ATTRIBUTES} attributes.")
    parser = etree.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True, huge_tree=True
    )
    try:
        root = cast("Element | None", etree.fromstring(text, parser))
    except etree.XMLSyntaxError:  # a page of nothing but comments
        return None, warnings
    if any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log):
        raise LimitExceeded("The elements of the page are nested too deeply.")
    lower = page.lower()
    if root is not None:
        _complete_body(root)
        write_formulas(root)
        for it in root.iter("optgroup", "option"):
            it.text = it.get("label", "").strip() or it.text
        if "shadowrootmode" in lower:
            for template in [*root.iter("template")]:
                if template.get("shadowrootmode"):  # the page shows it
                    template.tag = "div"
        warnings = [*warnings, *_list_losses(root, lower)]
    if "<body" in lower and "</html" not in lower and "</body" not in lower:
        warnings = [*warnings, "The page has no end: it may be cut off."]
    is_styled = "style" in lower and any(it in lower for it in _DOUBTFUL_WORDS)
    if root is not None and is_styled and (texts := _count_doubtful_texts(root)):
        warnings = [*warnings, f"Texts that the style of the page may hide are read: {texts:,}."]
    return root, warnings


def _complete_body(root: "Element") -> None:
    """Move what the parser took for a part of the head, as it knows no element of HTML 5."""
    head = root.find("head")
    children = [] if head is None else [*head]
    first = next((at for at, it in enumerate(children) if it.tag not in _IN_HEAD), len(children))
    if not (inner := children[first:]):
        return
    body = root.find("body")
    if body is None:
        body = etree.SubElement(root, "body")
    inner[-1].tail = (inner[-1].tail or "") + (body.text or "")
    body.text = ""
    body[:0] = inner


def _list_losses(root: "Element", page: str) -> Iterator[str]:
    """Yield a warning for each kind of content that is not read."""
    if "<iframe" in page or "<frame" in page:
        count = sum(bool(it.get("src") or it.get("srcdoc")) for it in root.iter(*_FRAMES))
        if count:
            yield f"Frames, which show other pages, are not read: {count:,}."
    texts = root.iter("text") if "<svg" in page else ()
    if count := sum(bool(len(it) or (it.text or "").strip()) for it in texts):
        yield f"Texts in drawings (SVG) are not read: {count:,}."


def decode_text(data: bytes, *, is_page: bool = False) -> tuple[str, list[str]]:
    """Return bytes as text, and warnings about its encoding.

    A mark at the beginning decides, then the declaration of a page, then the bytes. Raises
    `CopilotError` if no encoding fits.
    """
    declared = _find_declared_codec(data) if is_page else ""
    try:
        text, encoding = encodings.decode_text(data, declared)
    except UnicodeError as error:
        raise CopilotError(
            "The encoding of the text is not known.", hint="Save it as UTF-8."
        ) from error
    text = text.removeprefix("\ufeff")
    losses = encodings.Losses()
    losses.add(text)
    label = losses.describe(encoding.label) if losses.count else encoding.label
    if encoding.is_damaged:
        return text, [f"Its encoding is {label}."]
    if encoding.is_guess:
        return text, [f"The encoding was guessed: {label}. Save it as UTF-8 to be sure."]
    return text, []


def _find_declared_codec(data: bytes) -> str:
    """Return the codec that a page declares, or an empty string."""
    if not (found := _DECLARATION.search(data[:4096])):
        return ""
    try:
        codec = codecs.lookup(found[1].decode()).name
    except LookupError:
        return ""
    # a page in UTF-16 could not declare it in ASCII
    return _WEB_CODECS.get(codec, codec) if _CODECS.match(codec) else ""


def clean_text(text: str) -> str:
    """Return a text with straight quotation marks and one space for each run of white space."""
    if not text.isascii():
        text = text.translate(_QUOTES)
    # lines and tabs are not printable
    return text if text.isprintable() and "  " not in text else _SPACES.sub(" ", text)


def element_text(element: "Element", hidden: "Collection[Element]" = ()) -> str:
    """Return the visible text of an element as one line, with the descriptions of pictures."""
    if not len(element):
        return clean_text(element.text or "").strip()
    return clean_text("".join(text_pieces(element, hidden, with_pictures=True))).strip()


def read_lines(element: "Element", hidden: "Collection[Element]") -> str:
    """Return the visible text of an element with its lines and spaces, as `pre` shows it."""
    text = "".join(text_pieces(element, hidden, edge="\v", with_pictures=True))
    lines = _EDGES.sub("\n", text.translate(_QUOTES)).splitlines()
    return "\n".join(map(str.rstrip, lines)).strip("\n")


def text_pieces(
    element: "Element",
    hidden: "Collection[Element]",
    *,
    edge: str = " ",
    with_pictures: bool = False,
) -> Iterator[str]:
    """Yield the visible texts in an element, with an `edge` at the beginning and end of blocks.

    The element itself counts as visible, since its annotations do. `hidden` are the hidden
    elements of the page.
    """
    yield element.text or ""
    stack = [*reversed(element)]
    closed: dict[Element, str] = {}
    while stack:
        inner = stack.pop()
        if inner in closed:
            yield closed.pop(inner)
            continue
        tag = inner.tag
        space = edge if tag in BLOCKS else " " if tag in APART else ""
        tail = space + (inner.tail or "")
        if tag in UNSEEN or inner in hidden:
            yield tail
            continue
        if with_pictures:
            if tag in VALUED:
                yield read_value(inner)
            elif tag in STRUCK:
                space = "~~"
                tail = space + tail
            elif tag == "sup" and is_power(inner):
                space = "^"
        yield space + (inner.text or "")
        if len(inner):
            closed[inner] = tail
            stack += (inner, *reversed(inner))
        else:
            yield tail


def read_value(element: "Element") -> str:
    """Return the description of a picture, the value of a field, or a mark for what is chosen."""
    if element.tag == "option":
        return "\u2611 " if element.get("selected") is not None else ""
    kind = "image" if element.tag == "img" else element.get("type", "").lower()
    if kind in ("checkbox", "radio"):
        return " \u2610 " if element.get("checked") is None else " \u2611 "
    if kind in _WITHOUT_TEXT:
        return ""
    return f" {element.get('alt' if kind == 'image' else 'value', '')} "


def is_power(element: "Element") -> bool:
    """Return whether a raised text is a number: 10<sup>5</sup> is not 105."""
    return (element.text or "").strip().lstrip("-\u2212").isdecimal()


def expand_hidden_elements(root: "Element", hidden: "Collection[Element]") -> "frozenset[Element]":
    """Return the `hidden` elements and all in them, but `meta` and `link`: none shows a text."""
    found: set[Element] = set()
    for it in root.iter() if hidden else ():
        if it in hidden or it.getparent() in found:
            found.add(it)
    return frozenset(it for it in found if it.tag not in ("meta", "link"))


def find_hidden_elements(root: "Element | None") -> "frozenset[Element]":
    """Return the elements whose own attributes hide them; style sheets are not read."""
    if root is None:
        return frozenset()
    background = "" if next(root.iter("style", "link"), None) is not None else "white"
    values = (it for find in _HIDING for it in cast("list[Any]", find(root)))
    found = {*root.iter("dialog", "font", "template"), *(it.getparent() for it in values)}
    backgrounds: dict[Element, str] = {}
    return frozenset(it for it in found if _is_hidden(it, background, backgrounds))


_HIDING = [etree.XPath(f".//@{name}") for name in ("hidden", "style", "aria-hidden", "popover")]
"""Attributes that may hide an element; separate, as merging their elements takes long."""
_find_spaced = etree.XPath(".//@style[contains(., 'white-space')]")
_find_styled = etree.XPath(".//body//*[@class or @id or @style]")


def find_elements_with_lines(root: "Element") -> "frozenset[Element]":
    """Return the elements that show their text with its lines."""
    styles = cast("list[Any]", _find_spaced(root))
    styled: Iterator[Element] = (it.getparent() for it in styles if _PRE.search(it))
    plain = (it for it in styled if not any(inner.tag in BLOCKS for inner in it.iterdescendants()))
    return frozenset((*root.iter("pre", "textarea", "listing", "xmp"), *plain))


def _count_doubtful_texts(root: "Element") -> int:
    """Return the number of texts that a style sheet of the page or a script may hide."""
    names = {name for it in root.iter("style") for name in _HIDING_RULE.findall(it.text or "")}
    found: set[Element] = set()
    """The doubtful elements, and those in them."""
    count = 0
    for it in cast("list[Element]", _find_styled(root)):
        called = f"{it.get('class', '')} {it.get('id', '')}".split()
        is_doubtful = not names.isdisjoint(called) or _DOUBTFUL.search(it.get("style", ""))
        if is_doubtful and it not in found:
            found.update(it.iter())
            texts = chain(map(str, it.itertext()), map(read_value, it.iter(*VALUED)))
            count += any(text.strip() for text in texts)
    return count


def _is_hidden(element: "Element", background: str, backgrounds: "dict[Element, str]") -> bool:
    """Return whether an element hides its text; `background` is the colour behind the page.

    `backgrounds` are those that are known, so that nested elements are looked at once.
    """
    get = element.get
    if (hidden := get("hidden")) is not None and hidden.strip().lower() != "until-found":
        return True
    if (value := get("aria-hidden")) and value.strip().lower() == "true":
        return True
    is_closed = element.tag == "dialog" and get("open") is None
    if is_closed or element.tag == "template" or get("popover") is not None:
        return True
    style = _read_style(element)
    if style.get("display") == "none" or style.get("visibility") in ("hidden", "collapse"):
        return True
    if style.get("content-visibility") == "hidden":
        return True
    if not len(element) and _NO_SIZE.fullmatch(style.get("font-size", "")):
        return True
    color = style.get("color") or (element.tag == "font" and get("color"))
    if not color:
        return False
    behind = _find_background(element, background, backgrounds)
    return _read_color(color) == _read_color(behind)


def _read_style(element: "Element") -> Mapping[str, str]:
    if not (style := element.get("style")):
        return {}
    if "\\" in style:
        style = _STYLE_ESCAPE.sub(_unescape, style)
    found = _DISPLAY.findall(_STYLE_COMMENT.sub("", style).lower())
    return {name: value.strip() for name, value in found}


def _unescape(match: re.Match[str]) -> str:
    code = int(match[1], 16) if match[1] else ord(match[2])
    return chr(code) if 0 < code <= sys.maxunicode else ""


def _find_background(element: "Element", default: str, backgrounds: "dict[Element, str]") -> str:
    """Return the colour behind an element; an empty string if a style sheet may say it."""
    path: list[Element] = []
    here: Element | None = element
    while here is not None and here not in backgrounds:
        style = _read_style(here)
        color = style.get("background-color") or style.get("background") or here.get("bgcolor")
        if color or here.get("class"):
            backgrounds[here] = color or ""
            break
        path.append(here)
        here = here.getparent()
    found = default if here is None else backgrounds[here]
    backgrounds.update(dict.fromkeys(path, found))
    return found


def _read_color(text: str) -> str:
    color = _COLORS.get(text.strip().lower(), text.strip().lower())
    if numbers := _RGB.fullmatch(color):
        return "#" + "".join(f"{int(it):02x}" for it in numbers.groups())
    return "#" + "".join(2 * digit for digit in color[1:]) if re.fullmatch("#...", color) else color


def _count_attributes(tag: bytes) -> int:
    """Return an upper estimate of the number of attributes of a tag."""
    return len(_VALUE.sub(b" ", tag).replace(b"/", b" ").split())
