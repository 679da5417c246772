"""The encoding of a text, by its bytes: a mark at its beginning, UTF-8, or a guess."""

import codecs
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from copilot_runtime.base.errors import MissingPackage

try:
    import charset_normalizer
except ImportError:  # only texts that are not UTF-8 need it
    charset_normalizer = None

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_GUESSED = (
    *("cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "koi8_r"),
    *("cp932", "euc_jp", "big5", "gb18030", "cp949"),
)
"""The encodings that programs still write; those of old systems look like them."""

_WESTERN = re.compile(
    "[\x00-\x7fÄÖÜäöüßÀÂÇÉÈÊËÎÏÔÙÛàâçéèêëîïôùûÿŒœÁÍÓÚÑáíóúñ¿¡ÃÕãõÆØÅæøå"
    "«»€\u2018-\u201e\u2013\u2014…°§·ªº©®²½\xa0]*"
)
"""Texts of Western Europe, which a detector cannot tell from those of Central Europe."""

_KANA = re.compile("[\u3041-\u30fe]")

BLOCK = 1024 * 1024
_SAMPLE = 32 * 1024


class Encoding(NamedTuple):
    """The name of a codec, and whether the text only looks like it."""

    codec: str
    is_guess: bool = False


def decode_text(data: bytes) -> tuple[str, Encoding]:
    """Return a text and its encoding. Raises `UnicodeError` if none fits."""
    encoding = detect_encoding([data])
    try:
        return data.decode(encoding.codec), encoding
    except UnicodeDecodeError:
        if encoding.is_guess:
            raise
    encoding = Encoding(_guess(data[-_SAMPLE:]), is_guess=True)  # its last letter is not UTF-8
    return data.decode(encoding.codec), encoding


def detect_file_encoding(path: Path) -> Encoding:
    """Return the encoding of a file. Raises `UnicodeError` if none fits."""
    with path.open("rb") as file:
        return detect_encoding(iter(lambda: file.read(BLOCK), b""))


def detect_encoding(blocks: Iterable[bytes]) -> Encoding:
    """Return the encoding of a text in blocks. Raises `UnicodeError` if none fits."""
    sample = b""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    is_utf8 = True
    for number, block in enumerate(blocks):
        if number == 0 and (codec := find_wide_codec(block)):
            return Encoding(codec)
        if not is_utf8 or not block.isascii():
            try:
                utf8.decode(block)
            except UnicodeDecodeError:
                is_utf8 = False
        if len(sample) < _SAMPLE and not block.isascii():
            sample += b"\n".join(line for line in block.splitlines() if not line.isascii())
        if not is_utf8 and len(sample) >= _SAMPLE:
            break
    if is_utf8:
        return Encoding("utf-8")  # the end of a file may cut a character off
    return Encoding(_guess(sample[:_SAMPLE]), is_guess=True)


def find_wide_codec(block: bytes) -> str | None:
    """Return the codec of a text with a mark, or in which every second byte of ASCII is zero."""
    if codec := next((codec for mark, codec in _MARKS if block.startswith(mark)), None):
        return codec
    head = block[:1000]
    if len(head) < 4 or head.count(0) < len(head) // 4:
        return None
    return "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"


def _guess(sample: bytes) -> str:
    if charset_normalizer is None:
        raise MissingPackage("A text that is not UTF-8", "charset-normalizer", "knowledge")
    kana = len(_KANA.findall(sample.decode("euc_jp", "ignore")))
    if kana * 8 > len(sample) and _fits(sample, "euc_jp"):
        return "euc_jp"  # a detector takes it for Korean
    match = charset_normalizer.from_bytes(sample, cp_isolation=list(_GUESSED)).best()
    codec = str(match.encoding) if match else ""
    if codec == "cp949" and _is_rare_korean(sample) and _fits(sample, "cp932"):
        return "cp932"
    if codec not in ("", "cp1250") and _fits(sample, codec):
        return codec
    if _WESTERN.fullmatch(sample.decode("cp1252", "replace")):  # also a word or two
        return "cp1252"
    if codec != "cp1250":
        raise UnicodeError("Its encoding is not known: save it as UTF-8.")
    return codec


def _fits(sample: bytes, codec: str) -> bool:
    return "\ufffd" not in sample.decode(codec, "replace")


def _is_rare_korean(sample: bytes) -> bool:
    """Return whether most letters are those that only cp949 has, and Korean hardly."""
    text = "".join(it for it in sample.decode("cp949", "ignore") if it > "\x7f")
    return len(text.encode("euc_kr", "ignore")) > 5 * len(text)  # these have eight bytes, not two
