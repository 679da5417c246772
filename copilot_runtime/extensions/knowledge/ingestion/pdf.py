"""The texts of the pages of a PDF, with its forms and notes. It runs in the sandbox."""

import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.extensions.knowledge.ingestion.visibility import MALFORMED, read_text

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

MOST_PAGES = 5000
MOST_CHARACTERS = 16 * 1024 * 1024

_PAINTS = re.compile(rb"(?:^|\s)(?:Do|EI|sh|[fFSsBb]\*?)(?=\s|$)")
"""Operators that paint pictures and areas."""
_UNREADABLE = re.compile(r"(?:[\0-\b\x0e-\x1f\x7f-\x9f\ufffd\ue000-\uf8ff] ?){3,}")
"""Glyphs of a font that does not say which characters they are; a bullet is alone."""
_UNTITLED = frozenset(
    ("untitled", "(untitled)", "untitled document", "unbenannt", "sans titre", "about:blank")
)
"""Titles that programs write where there is none."""
_HIDDEN = 2 | 32
"""Flags of annotations that are not shown on a screen."""
_PASSWORD = 1 << 13
"""The flag of a form's field whose value is secret."""
_NO_NOTES = ("/Link", "/Popup", "/Widget")
_STAMP = re.compile("/(?:S[BH])?((?:[A-Z][a-z]+)+)")
"""The name of a stamp, such as `/NotApproved`, or `/SBFinal` of Acrobat."""

_LIST_ITEM = re.compile(r"\s*(?:[-*\u2022\u25aa\u25cf\u2013\u00b7]|\(?\w{1,3}[.)])\s")
_HYPHEN = re.compile(r"[^\W\d_]{2}[-\u2010\u00ad]$")
_COMPOUND = re.compile(r"(?:and|or|und|oder|bzw|et|ou|y|o|en|of)\b")
"""Words before which a hyphen stays, as in "pre- and post-war"."""
_COLUMNS = re.compile(r"\S(?: {3,}|\t)\S|\d\s*$")
"""A line that may be the row of a table."""
_FULL = 0.7
"""The part of the widest line of a page that a line of a paragraph fills."""


def extract_pages(data: bytes) -> dict[str, object]:
    """Return the title of a PDF, the texts of its pages, and warnings. Raises `CopilotError`."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise CopilotError(
                "The PDF is encrypted.", hint="Save it without a password, and try again."
            )
        if len(reader.pages) > MOST_PAGES:
            raise LimitExceeded(f"The PDF has more than {MOST_PAGES} pages.")
        pages: list[str] = []
        scans, garbled, lossy = list[int](), list[int](), list[int]()
        unseen: dict[str, list[int]] = {}
        warnings: list[str] = []
        left = MOST_CHARACTERS
        for number, page in enumerate(reader.pages, 1):
            text, reasons, is_lossy = read_text(page)
            lossy += [number] * is_lossy
            for reason in reasons:
                unseen.setdefault(reason, []).append(number)
            text, count = _UNREADABLE.subn("\ufffd", text)
            if count:
                garbled.append(number)
            text = join_lines(text)
            if not text.strip() and _is_painted(page):
                scans.append(number)
            notes: list[str] = []
            try:
                notes += _read_annotations(page)
            except MALFORMED:
                warnings.append(f"Page {number}: its notes and fields cannot be read.")
            pages.append("\n\n".join((text, *notes)))
            left -= len(pages[-1])
            if left < 0:
                raise LimitExceeded(f"The PDF has more than {MOST_CHARACTERS:,} characters.")
        title = str((reader.metadata and reader.metadata.title) or "").strip()
        title = "" if title.lower() in _UNTITLED else title
        warnings = [*_find_losses(reader, scans, garbled, lossy), *warnings, *_name_unseen(unseen)]
    except CopilotError:
        raise
    except DependencyError as error:
        raise CopilotError(
            "The PDF is encrypted, and the package 'cryptography' is not installed.",
            hint="Install it with: pip install cryptography",
        ) from error
    except Exception as error:  # of broken files, the parser raises whatever it stumbled over
        raise CopilotError(f"The PDF is damaged: {error}") from error
    if not any(page.strip("\ufffd \n") for page in pages):
        why = "pages are pictures, as a scanner makes them"
        if garbled:
            why = "fonts do not say which characters they show"
        raise CopilotError(
            f"The PDF has no text: its {why}.",
            hint="Run text recognition (OCR) over it, and try again.",
        )
    return {"title": title, "pages": pages, "warnings": warnings}


def join_lines(text: str) -> str:
    """Return the text of a page with each paragraph on one line, and its words not hyphenated."""
    lines = text.splitlines()
    widest = max(map(len, lines), default=0)
    joined: list[str] = []
    last = ""
    for line in map(str.rstrip, lines):
        separator = _find_separator(last, line, widest)
        if separator == "-" and _find_compound(last, line) in text:
            separator = ""
        if separator is None:
            joined.append(line)
        elif separator == "-":
            joined[-1] = joined[-1][:-1] + line.lstrip()
        else:
            joined[-1] += separator + line.lstrip()
        last = line
    return "\n".join(joined)


def _find_separator(last: str, line: str, widest: int) -> str | None:
    """Return the text between two lines of a paragraph, `-` for a hyphen to remove, else `None`."""
    start = line.lstrip()
    if not last or not start or _LIST_ITEM.match(line):
        return None
    if last.endswith("\u00ad"):
        return "-"
    if _HYPHEN.search(last) and start[0].islower():
        return " " if _COMPOUND.match(start) else "-"
    if len(last) < widest * _FULL or _COLUMNS.search(last) or _COLUMNS.search(line):
        return None
    if last[-1] > "\u2e7f" and start[0] > "\u2e7f":  # no spaces between Chinese characters
        return "" if widest >= 20 and last[-1] not in "\u3002\uff01\uff1f" else None
    if widest < 40 or last[-1] in ".!?:;":
        return None
    return " " if start[0].isalpha() or start[0] in "(\"'\u201c\u201e" else None


def _find_compound(last: str, line: str) -> str:
    """Return the word around the end of a line with its hyphen."""
    return last.split()[-1] + re.split(r"[^\w-]", line.lstrip(), maxsplit=1)[0]


def _is_painted(page: "PageObject") -> bool:
    contents = page.get_contents()
    return contents is not None and bool(_PAINTS.search(contents.get_data()))


def _read_annotations(page: "PageObject") -> Iterator[str]:
    """Yield the values of the form's fields on a page, and its notes."""
    for reference in page.annotations or ():
        annotation: Any = reference.get_object()
        if not isinstance(annotation, dict) or int(_find(annotation, "/F") or 0) & _HIDDEN:
            continue
        kind = _find(annotation, "/Subtype")
        if kind == "/Widget":
            yield from _read_field(annotation)
            continue
        note = _read_text(_find(annotation, "/Contents"))
        if kind == "/Stamp" and not note:
            name = _STAMP.fullmatch(_read_text(_find(annotation, "/Name")))
            note = re.sub("(?<=[a-z])(?=[A-Z])", " ", name[1]) if name else ""
        if kind not in _NO_NOTES and note:
            author = _read_text(_find(annotation, "/T"))
            yield f"Note by {author}: {note}" if author else f"Note: {note}"


def _read_field(widget: Any) -> Iterator[str]:
    """Yield the label and the value of a field, unless it is empty."""
    chain = [widget]  # a field inherits what only its parents say
    while "/Parent" in chain[-1] and len(chain) < 10:
        chain.append(chain[-1]["/Parent"].get_object())

    def find(key: str) -> Any:
        return next((field[key] for field in chain if key in field), None)

    is_button = find("/FT") == "/Btn"
    value = find("/V")
    if is_button and value != widget.get("/AS", value):
        return  # another button of the group is on
    if find("/FT") == "/Sig" or (int(find("/Ff") or 0) & _PASSWORD and not is_button):
        return
    values = value if isinstance(value, list) else [value]
    text = ", ".join(filter(None, map(_read_text, values)))
    if text and text != "/Off":
        names = filter(None, (_read_text(_find(it, "/T")) for it in reversed(chain)))
        label = _read_text(_find(chain, "/TU")) or ".".join(names)
        yield f"{label}: {text.removeprefix('/')}"


def _find(where: Any, key: str) -> Any:
    """Return a value of a dictionary, or of the first of several that has it, or `None`."""
    dictionaries = where if isinstance(where, list) else [where]
    return next((it[key] for it in dictionaries if key in it), None)  # follows references


def _read_text(value: Any) -> str:
    """Return a string, a name or a stream of a PDF as text."""
    if value is None:
        return ""
    if hasattr(value, "get_data"):
        value = value.get_data().decode("utf-8", "replace")
    return "\n".join(str(value).split("\r")).strip()


def _find_losses(
    reader: "PdfReader", scans: list[int], garbled: list[int], lossy: list[int]
) -> Iterator[str]:
    """Yield warnings about contents that are not read."""
    if scans:
        what = "Page" if len(scans) == 1 else "Pages"
        verb = (
            "has no text: it is a picture" if len(scans) == 1 else "have no text: they are pictures"
        )
        yield f"{what} {_join_numbers(scans)} {verb}. Run text recognition (OCR) over the file."
    if garbled:
        what = "page" if len(garbled) == 1 else "pages"
        yield (
            f"Text on {what} {_join_numbers(garbled)} has no readable characters, and is written "
            "as \ufffd. Run text recognition (OCR) over the file."
        )
    if lossy:
        yield (
            f"Letters on page {_join_numbers(lossy)} may be lost: a font does not say what they "
            "are. Run text recognition (OCR) over the file."
        )
    catalog: Any = reader.trailer["/Root"]
    if names := _list_hidden_layers(catalog):
        count = f"{len(names):,}, such as {names[0]!r}"
        yield f"Layers that the file does not show may have texts, which are read: {count}."
    if "/XFA" in (_find(catalog, "/AcroForm") or {}):
        yield "The values of its dynamic form (XFA) are not read."
    if "/EmbeddedFiles" in (_find(catalog, "/Names") or {}):
        yield "The files attached to it are not read."


def _name_unseen(unseen: Mapping[str, list[int]]) -> Iterator[str]:
    for what, numbers in unseen.items():
        where = f"{'page' if len(numbers) == 1 else 'pages'} {_join_numbers(numbers)}"
        yield f"{what} on {where} is read, though no reader sees it."


def _list_hidden_layers(catalog: Any) -> list[str]:
    """Return the names of the layers that a viewer does not show at first."""
    try:
        layers: Any = _find(catalog, "/OCProperties") or {}
        default: Any = _find(layers, "/D") or {}
        hidden = _find(default, "/OFF") or ()
        if _find(default, "/BaseState") == "/OFF":
            visible = _find(default, "/ON") or ()
            hidden = [it for it in _find(layers, "/OCGs") or () if it not in visible]
        return [_read_text(_find(it.get_object(), "/Name")) for it in hidden]
    except MALFORMED:
        return []


def _join_numbers(numbers: Iterable[int]) -> str:
    """Return numbers in order as text, such as `2 to 4, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)
