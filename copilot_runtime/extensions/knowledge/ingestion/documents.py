"""Read documents, whose type is detected by their bytes, as chunks of text with positions."""

import csv
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from copilot_runtime.base.delimiters import find_delimiter, open_reader
from copilot_runtime.base.encodings import find_wide_codec
from copilot_runtime.base.errors import LimitExceeded, MissingPackage
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.base.office import is_encrypted
from copilot_runtime.extensions.knowledge import office
from copilot_runtime.extensions.knowledge.ingestion import markdown, pdf
from copilot_runtime.extensions.knowledge.ingestion.chunks import (
    Chunk,
    ChunkPosition,
    Headings,
    decode_chunk,
    find_new_passages,
    list_paragraphs,
    normalize_text,
    pack_passages,
)
from copilot_runtime.extensions.knowledge.ingestion.html import read_passages, read_title
from copilot_runtime.extensions.knowledge.ingestion.rows import CsvRows
from copilot_runtime.extensions.knowledge.ingestion.sandbox import (
    UnreadableDocument,
    run_in_sandbox,
)
from copilot_runtime.extensions.knowledge.rdf.html import (
    decode_text,
    find_hidden_elements,
    parse_html,
)

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a document in bytes; plain text may have a quarter of it."""

HTML = "text/html"
PDF = "application/pdf"
MARKDOWN = "text/markdown"
CSV = "text/csv"
TEXT = "text/plain"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
_SANDBOXED = (PDF, DOCX, XLSX, PPTX)
"""Types that are read in a process of their own, whoever they are from."""

_SIGNATURES = {
    rb"\x89PNG\r\n": "image/png",
    rb"\xff\xd8\xff": "image/jpeg",
    rb"GIF8[79]a": "image/gif",
    rb"RIFF.{4}WEBP": "image/webp",
    rb"(?:II\*\x00|MM\x00\*)": "image/tiff",
    rb"BM.{4}\x00{4}": "image/bmp",
    rb"\x00.{3}ftypavif": "image/avif",
    rb"\x00.{3}ftyp(?:heic|heix|mif1)": "image/heif",
    rb"\x00.{3}ftypM4[AB]": "audio/mp4",
    rb"\x00.{3}ftyp": "video/mp4",
    rb"\x1aE\xdf\xa3": "video/webm",
    rb"RIFF.{4}AVI ": "video/x-msvideo",
    rb"RIFF.{4}WAVE": "audio/wav",
    rb"OggS\x00": "audio/ogg",
    rb"fLaC\x00": "audio/flac",
    rb"ID3[\x02-\x04]": "audio/mpeg",
    rb"\xff[\xf2\xf3\xfa\xfb]": "audio/mpeg",
    rb"PK\x03\x04": "application/zip",
    rb"\x1f\x8b": "application/gzip",
    rb"7z\xbc\xaf": "application/x-7z-compressed",
    rb"\xd0\xcf\x11\xe0": "application/x-ole-storage",
    rb"(?:\x7fELF|MZ.{,62}\x00)": "application/x-executable",
    rb"SQLite format 3\x00": "application/vnd.sqlite3",
    rb"\{\\rtf": "application/rtf",
    # printers put commands before a PDF, and old programs their own headers
    rb"(?:[\xef\xbb\xbf\s]*+|[^\x00-\x08\x0e-\x1f]*+[\x00-\x08\x0e-\x1f].*?)%PDF-\d": PDF,
}
"""Magic bytes of binary files; no typed text begins with any of them."""
_SIGNATURE = re.compile(b"|".join(b"(%b)" % signature for signature in _SIGNATURES), re.DOTALL)
_PDF = re.compile(rb"^%PDF-\d\.\d\s*$", re.MULTILINE)
_ENCRYPTED = "application/encrypted"
_NAMES = {
    "application/zip": "an archive, or a document of another office program: save it as PDF",
    "application/x-ole-storage": (
        "a document of an old office program (.doc, .xls, .ppt): save it as DOCX, XLSX, PPTX or PDF"
    ),
    _ENCRYPTED: "encrypted: save it without a password",
    "application/rtf": "a document in Rich Text Format: save it as DOCX or PDF",
    "message/rfc822": "a mail, or a page in the form of one: save it as PDF or HTML",
    "application/octet-stream": "damaged, or no text",
}
_MAIN_PARTS = {
    b"word/document": DOCX,
    b"xl/workbook.xml": XLSX,
    b"ppt/presentation.xml": PPTX,
}
"""The beginning of the name of the part with the text of an office document."""

_HTML = re.compile(
    rb"(?:<\?xml[^>]*>\s*)?(?:<!--(?:[^-]|-(?!->))*+-->\s*+)*+"
    rb"<(?:!doctype\s+html|html|head|body|title|meta|link|base|script|style|div|main|article"
    rb"|section|header|nav|p|h[1-6]|ul|ol|dl|table|span|a|img)\b",
    re.IGNORECASE,
)
_TAGS = re.compile(rb"<(?:/p|/div|/html|/h[1-6]|/a|/span|/li|br\s*/?)>", re.IGNORECASE)
_CONTROL = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})
_MARKDOWN = re.compile(
    r"^(?:#{1,6}[ \t]\S.*|```.*|={3,}|[ \t]*[-*+][ \t]+\S.*\n(?:[ \t\r]*\n)*+[ \t]*[-*+][ \t]+\S.*"
    r"|.*\]\([^\s\])]+\).*)$",
    re.MULTILINE,
)
_ESCAPES = re.compile(r"((?:\\u(?!00[0-7])[0-9a-fA-F]{4})+)|\\.")
"""Letters that JSON escapes, in a group, and other escapes."""
_BLANK_LINES = re.compile(r"\n\s*\n")


class UnsupportedType(UnreadableDocument):
    """The type of a document is not supported."""

    def __init__(self, media_type: str) -> None:
        what = _NAMES.get(media_type, f"of the type {media_type}")
        super().__init__(
            f"The file is {what}.",
            hint="HTML, PDF, DOCX, XLSX, PPTX, Markdown, CSV and plain text can be read.",
        )
        self.media_type = media_type


@dataclass(frozen=True)
class Document:
    """The text of a document as chunks."""

    media_type: str
    title: str = ""
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    warnings: list[str] = field(default_factory=list[str])
    """Parts that could not be read, and guesses."""


def read_document(data: bytes, name: str = "", *, sandboxed: bool = False) -> Document:
    """Read a document. `name` may decide between kinds of text, and is its title if it has none.

    Untrusted documents are read `sandboxed`, in a process with limits of time and memory; PDF
    and office files always are. Raises `UnreadableDocument`, or `LimitExceeded` if it is too
    large, or takes too long. It takes time: call it in a thread.
    """
    media_type = detect_media_type(data, name)
    if media_type not in _READERS:
        is_office = name.lower().endswith((".docx", ".xlsx", ".pptx"))
        if is_office and media_type == "application/zip":
            raise UnreadableDocument("The document is damaged or cut off.", hint="Copy it again.")
        raise UnsupportedType(media_type)
    most = MOST_BYTES if media_type in _SANDBOXED else MOST_BYTES // 4
    if len(data) > most:
        raise LimitExceeded(f"The file is larger than {most // 1024 // 1024} MB.")
    if sandboxed and media_type not in _SANDBOXED:
        value: Any = run_in_sandbox(__file__, "extract_document", data, media_type)
        chunks = [*map(decode_chunk, value["chunks"])]
        document = Document(media_type, value["title"], chunks, value["warnings"])
    else:
        document = _READERS[media_type](data)
    title = normalize_text(document.title) or PurePosixPath(name).name
    return replace(document, title=title)


def extract_document(data: bytes, media_type: str) -> JsonObject:
    """Read a document of a given type inside the sandbox, and return it as JSON."""
    document = _READERS[media_type](data)
    chunks = [chunk.encode() for chunk in document.chunks]
    return {"title": document.title, "chunks": [*chunks], "warnings": [*document.warnings]}


def detect_media_type(data: bytes, name: str = "") -> str:
    """Return the type of a document by its bytes. The name only decides between kinds of text."""
    if signature := _SIGNATURE.match(data[:1024]):
        found = [*_SIGNATURES.values()][(signature.lastindex or 0) - 1]
        return _detect_office(data, found)
    if _PDF.search(data[:1024]) and b"%%EOF" in data[-1024:]:  # behind the lines of a protocol
        return PDF
    if codec := find_wide_codec(data):
        data = data.decode(codec, "replace").encode()
    if len(head := data[:4096]) > len(head.translate(None, _CONTROL)):
        return "application/octet-stream"
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in (".eml", ".mht", ".mhtml"):
        return "message/rfc822"
    if _HTML.match(head) or (suffix in (".html", ".htm", ".xhtml") and _TAGS.search(data)):
        return HTML
    text = data[:20_000].decode("utf-8", "replace")
    return _detect_text(text, suffix, whole=len(data) <= 20_000)


def _detect_office(data: bytes, found: str) -> str:
    """Return the type of a document that is an archive or a compound file, else that found."""
    if is_encrypted(data):
        return _ENCRYPTED
    if found != "application/zip":
        return found
    end = data.rfind(b"PK\x05\x06")
    size = int.from_bytes(data[end + 12 : end + 16], "little")
    names = data[max(0, end - size) : end] if end > 0 else b""
    if b"[Content_Types].xml" not in names:
        return found
    return next((kind for part, kind in _MAIN_PARTS.items() if part in names), found)


def _detect_text(text: str, suffix: str, *, whole: bool) -> str:
    lines = text.splitlines()
    if not whole:
        lines = lines[:-1]
    plain = [line for line in lines if not line.startswith("#")]
    if suffix in (".csv", ".tsv") and find_delimiter((plain or lines)[:50])[1]:
        return CSV
    delimiter = "" if suffix in (".md", ".markdown", ".txt") else _find_table(lines)
    if delimiter and (len(lines) > 2 or delimiter == "\t"):
        return CSV
    if suffix in (".md", ".markdown") or (suffix != ".txt" and _MARKDOWN.search(text)):
        return MARKDOWN
    return TEXT


def _find_table(lines: list[str]) -> str:
    """Return the delimiter of a table whose rows have equally many columns, or an empty string."""
    sample = [line for line in lines if line.strip()][:50]
    delimiter, share = find_delimiter(sample)
    try:
        rows = [*open_reader(sample, delimiter, is_strict=True)]
    except csv.Error:
        return ""
    return delimiter if share == 1 and len(rows) > 1 else ""


def read_html_text(
    root: "Element | None",
    hidden: "Collection[Element]",
    warnings: Iterable[str] = (),
    without: Sequence[str] | None = None,
) -> Document:
    """Return the text of a page `without` that of things, each piece with the headings above."""
    if root is None:
        return Document(HTML, warnings=[*warnings])
    passages = read_passages(root, hidden)
    if without is not None:
        passages = find_new_passages(passages, without)
    title = normalize_text(read_title(root))
    return Document(HTML, title, pack_passages(passages), [*warnings])


def _read_html(data: bytes) -> Document:
    root, warnings = parse_html(data)
    return read_html_text(root, find_hidden_elements(root), warnings)


def _decode(data: bytes) -> tuple[str, list[str]]:
    """Return bytes as text with the letters that JSON escapes, and warnings about its encoding."""
    text, warnings = decode_text(data)
    if "\\u" in text and text.lstrip()[:1] in ("{", "["):
        for part in (text, text.lstrip().partition("\n")[0]):  # a value, or one in each line
            with suppress(ValueError):
                loads(part.encode())
                return _ESCAPES.sub(_decode_escapes, text), warnings
    return text, warnings


def _decode_escapes(found: re.Match[str]) -> str:
    """Return the letters of escapes of JSON; others, and those of line breaks, stay as they are."""
    letters = loads(f'"{found[1]}"'.encode()) if found[1] else ""
    return letters if letters.isprintable() and letters else found[0]


def _read_text(data: bytes) -> Document:
    text, warnings = _decode(data)
    lines = enumerate(text.splitlines(), 1)
    return Document(TEXT, "", pack_passages(list_paragraphs(lines, "")), warnings)


def _read_markdown(data: bytes) -> Document:
    text, warnings = _decode(data)
    title, passages = markdown.read_passages(text.splitlines())
    return Document(MARKDOWN, title, pack_passages(passages), warnings)


def _read_csv(data: bytes) -> Document:
    text, warnings = _decode(data)
    rows = CsvRows(text)
    passages = pack_passages(rows)
    if not passages and text.strip():  # another format with commas
        return _read_text(data)
    return Document(CSV, "", passages, [*warnings, *rows.warnings])


def _read_pdf(data: bytes) -> Document:
    if find_spec("pypdf") is None:
        raise MissingPackage("Reading PDF files", "pypdf", "knowledge")
    start = max(0, data.find(b"%PDF-", 0, 1024))  # its offsets count from here
    result: Any = run_in_sandbox(pdf.__file__, "extract_pages", data[start:])
    passages = (
        Chunk(text, ChunkPosition(page=number))
        for number, page in enumerate(result["pages"], 1)
        for text in map(str.strip, _BLANK_LINES.split(page))
    )
    return Document(PDF, result["title"], pack_passages(passages), result["warnings"])


def _read_word(data: bytes) -> Document:
    return _read_office(data, DOCX, "word")


def _read_workbook(data: bytes) -> Document:
    return _read_office(data, XLSX, "excel")


def _read_slides(data: bytes) -> Document:
    return _read_office(data, PPTX, "slides")


def _read_office(data: bytes, media_type: str, reader: str) -> Document:
    file = Path(office.__file__).with_name(f"{reader}.py")
    result: Any = run_in_sandbox(str(file), "extract_passages", data)
    passages, headings = list[Chunk](), Headings()
    for passage in result["passages"]:
        if level := passage.get("level"):
            heading = headings.enter(level, passage["text"], passage.get("page"))
            if media_type == DOCX or heading.place.page:  # no names of sheets, no "Slide 1"
                passages.append(heading)
            continue
        row = passage.get("row")
        rows = (row, row) if row else None
        place = ChunkPosition(passage.get("page"), headings.trail, rows=rows)
        passages.append(Chunk(passage["text"], place))
    title = result["title"] or headings.title
    return Document(media_type, title, pack_passages(passages), result["warnings"])


_READERS: Mapping[str, Callable[[bytes], Document]] = {
    HTML: _read_html,
    PDF: _read_pdf,
    MARKDOWN: _read_markdown,
    CSV: _read_csv,
    TEXT: _read_text,
    DOCX: _read_word,
    XLSX: _read_workbook,
    PPTX: _read_slides,
}
