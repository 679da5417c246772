"""The encoding of a text, by its bytes: a mark at its beginning, UTF-8, or a guess."""

import codecs
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from math import log
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

_ESCAPES = re.compile(rb"\x1b\$(?:[@B]|\(D|(\)C))")
"""Marks of texts of seven bits that have Japanese or, with a group, Korean letters behind them."""

_GUESSED = ("cp1252", "cp1250", "cp932", "euc_jp", "big5", "gb18030", "cp949")
"""The encodings that programs still write; those of old systems look like them."""

_LETTERS = {
    "cp1251": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъёіїєґўјђљњћџѓќѕ",
    "koi8_r": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
    "cp1253": "αοιετσνηυρπκμλςωάίόγδέήθχφβξύζψώϊϋΐΰ",
    "cp1255": "יוהלארמתשבנםחדעקפטגצסכזןךץף",
    "cp1256": "اليمنرتوبةعدسفهكقأحجشطصخىزإضذثغئظءؤآپچژگ",
    "cp874": (
        "านรอกเง\u0e48มยลวดท\u0e49ส\u0e35ต\u0e31ค\u0e34ปบใหแจพ\u0e4cชข\u0e38ไ"
        "ะ\u0e37ถ\u0e36\u0e39ญโศผซำณธภษ\u0e47ฟฤฐฉฮฆฎฝ\u0e4aฏฬ\u0e4bฑฌฒฯๆ"
    ),
}
"""Codecs of other scripts, and their letters, the most frequent first."""
_OTHERS = re.compile("[\x00-\x7f\xa0«»\u2013-\u2026№€₪°§·\u200e\u200f،؛؟\u0640\u05be\u05f3\u05f4]+")
"""Characters between words of other scripts."""
_MISFIT = re.compile(
    "[A-Za-z][^\x00-\x7f]|[^\x00-\x7f][A-Za-z]|[\u0430-\u0451\u03ac-\u03ce][\u0401-\u042f\u0391-\u03a9]"
    "|(?<![\u0e01-\u0e2e\u0e31\u0e34-\u0e3a\u0e47-\u0e4e])[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]"
    "|[\u0e40-\u0e44](?![\u0e01-\u0e2e])"
)
"""Pairs of characters that words do not have: letters of two scripts, a capital in a word, or a
sign of Thai without its letter."""
_LEAST_SCORE = -4.1
"""Letters that fit less well are those of Chinese characters."""

_LATIN = {
    "cp1252": (
        *("éertinascopudlmfgàèhêvqbxôîyjzçâûùïëœü", "enrtüsglihufcäabödzmkpoßwvyxé"),
        *("inceaósorltmádpuívfbgúñéxqzhjüç", "oeisanãrlcçptmdváíuéfbógúõêxhzâqjàôü"),
        *("èàùòitaronesulcpmdgéìhvbfzqk", "ätnersilkaöydvmfpogåuhjbcé"),
        *("eråntøslpkgidafmævouhjbyâéc", "ansrliðtkeuáímgdvófbæúpjýhöþoyé"),
        *("itesaävlõnmurükdjpbhgoöfšž", "iarsectnèlmpodófòàuéçívbhxgúqzïjüá"),
        *("enirlatësdégoïvpbkmchfuóäjöyzxê", "eanoñrudithlgkvzsùmpwfbjêyc"),
        "eianrtosldumcpgvfbhqyjkzwxéáíóúèàöäüåçøãæñêôâîûùëïòìõœß",
    ),
    "cp1250": (
        *("aioewnzycłdrsktpużęąmśóćljbgńhźf", "etlsáakérnzoimgvíhóbjfyödpőcuüúű"),
        *("noeaítvpásklirdumzřcčéýhžybějšůfgúóxňťď", "ieăarntculsoţşpfmdîzgvbâhx"),
        *("oanerivtspákludzmčbíýcéúťyžhjľšfgóôňäxĺďŕ", "aeiončrkujšptvmlsždgćzđbchf"),
    ),
    "cp1254": ("a\u0131leinrmdsktyşçüuoğzbgöcphvfâî",),
}
"""Codecs of Latin letters, and for each language those of its words that are not all ASCII, the
most frequent first. The last one of cp1252 is for words of several languages."""
_SIGNS = re.compile(
    "[\x00-@\\[-`{-\x7f«»€\u2018-\u201e\u2013\u2014…§°·©®™±µ•¡\xa0]+|(?<=[\\dmt])[²³](?!\\w)"
    "|(?<![^\\W_])[¿£](?=[\\W\\dA-ZÁÉÍÓÚ])|(?<=[\\d. ])[ªº¼½¾](?!\\w)"
)
"""Characters that are no letters, where they are signs in all languages, as in `5 m³`."""
_STRANGE = re.compile("[ìù][a-zà-þ]|ã[a-df-hj-nprt-y]|ń[aeiouy]|ăo|őe")
"""Pairs of letters that words do not have."""
_MISFIT_COST = 10
_HANDICAPS = {"cp1252": 0.0, "cp1250": 1.5, "cp1254": 2.5}
"""The costs of codecs that are not as frequent."""
_TURKISH = frozenset("çğıöşüÇĞİÖŞÜâîûÂÎÛ")

_KANA = re.compile("[\u3041-\u30fe]")

NO_TEXT = b"\0\x1a"
"""Zero bytes, which systems write where a program ends, and the mark at the end of texts of DOS."""

BLOCK = 1024 * 1024
_SAMPLE = 32 * 1024
_HEAD = 4 * 1024
"""Bytes of a sample that show the language of Latin letters."""


class Encoding(NamedTuple):
    """The name of a codec, and what is not certain about it."""

    codec: str
    is_guess: bool = False
    """`True` if the text only looks like it."""
    is_damaged: bool = False
    """`True` if some bytes are not of the encoding."""
    has_utf8: bool = False
    """`True` if it is a guess, and lines are UTF-8."""

    @property
    def errors(self) -> str:
        """The error handler for decoding: only UTF-8 is certain enough to replace invalid bytes."""
        return "replace" if self.codec == "utf-8" else "strict"

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.codec}, but for lines that are UTF-8" if self.has_utf8 else self.codec


class LineDecoder:
    """Decodes the lines of a text in a guessed encoding, of which some may be UTF-8.

    Bytes that are of neither are replaced.
    """

    def __init__(self, codec: str) -> None:
        self._codec = codec
        self.encoding = Encoding(codec, is_guess=True)
        """The encoding of the lines decoded so far."""

    def decode(self, line: bytes) -> str:
        """Return a line as text."""
        with suppress(UnicodeDecodeError):
            text = line.decode()
            if text.isascii():
                return text
            if self._may_be_utf8(text):
                self.encoding = self.encoding._replace(has_utf8=True)
                return text
        return line.decode(self._codec, "replace")

    def _may_be_utf8(self, text: str) -> bool:
        """Return whether letters that bytes have as UTF-8 are more than a coincidence."""
        if self._codec in _LATIN:
            return all(it < "\u0250" or it >= "\u0800" for it in text)
        has_letters = text == text.encode(self._codec, "ignore").decode(self._codec)
        return has_letters and (
            self._codec in _LETTERS or all(it < "\x80" or it >= "\u0800" for it in text)
        )


class Losses:
    """Characters that could not be read, in the blocks of a text in order."""

    def __init__(self) -> None:
        self.count = self._first = 0
        self._line = 1

    def add(self, text: str) -> None:
        """Count the characters that were replaced in the next block."""
        if count := text.count("\ufffd"):
            self._first = self._first or self._line + text.count("\n", 0, text.index("\ufffd"))
            self.count += count
        self._line += text.count("\n")

    def describe(self, codec: str) -> str:
        """Return the encoding with the losses, such as `utf-8, but for 1 character (line 3)`."""
        many = "characters, the first in" if self.count > 1 else "character in"
        return f"{codec}, but for {self.count:,} {many} line {self._first:,}"


def decode_text(data: bytes, declared: str = "") -> tuple[str, Encoding]:
    """Return a text and its encoding, which a page may declare.

    Texts of one byte per character are no UTF-8 by chance: such a declaration is false then. Raises
    `UnicodeError` if none fits.
    """
    wide = find_wide_codec(data)
    if declared.startswith(("cp125", "iso8859")) and not wide:
        with suppress(UnicodeDecodeError):
            return data.decode(), Encoding("utf-8")
    for codec in dict.fromkeys((wide or declared or "utf-8", "utf-8")):
        try:
            return data.decode(codec), Encoding(codec)
        except UnicodeDecodeError:
            text = data.decode(codec, "replace")
        if wide or _is_read(text):
            return text, Encoding(codec, is_damaged=True)
    encoding = detect_encoding([data])
    if not encoding.is_guess:
        return data.decode(encoding.codec, encoding.errors), encoding
    decoder = LineDecoder(encoding.codec)
    text = "".join(map(decoder.decode, data.splitlines(keepends=True)))
    return text, decoder.encoding


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
    if is_utf8 and not utf8.getstate()[0]:  # else its end cuts a character off
        return Encoding("utf-8")
    sample = sample[:_SAMPLE]
    if _is_read(sample.decode("utf-8", "replace")):
        return Encoding("utf-8", is_damaged=True)
    lines = sample.split(b"\n")
    others = [line for line in lines if not _is_utf8(line)]
    return Encoding(_guess(b"\n".join(others or lines)), is_guess=True)


def _is_utf8(line: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        line.decode()
        return True
    return False


def find_wide_codec(block: bytes) -> str | None:
    """Return the codec of a text with marks, or in which every second byte of ASCII is zero."""
    if codec := next((codec for mark, codec in _MARKS if block.startswith(mark)), None):
        return codec
    if (found := _ESCAPES.search(block)) and block.isascii():
        return "iso2022_kr" if found[1] else "iso2022_jp_ext"
    head = block[:1000]
    bare = head.rstrip(NO_TEXT)
    head = bare if len(head) - len(bare) > 3 else head
    if len(head) < 4 or head.count(0) < len(head) // 4:
        return None
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) < 4 * min(even, odd):  # they are no halves of characters
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _is_read(text: str) -> bool:
    """Return whether few characters of a text were replaced, of those that are not ASCII."""
    lost = text.count("\ufffd")
    return len(text) - len(text.encode("ascii", "ignore")) - lost > 3 * lost


def _guess(sample: bytes) -> str:
    scores = {it: score for it in _LETTERS if (score := _score(sample, it)) is not None}
    if (best := max(scores, key=scores.__getitem__, default="")) and scores[best] > _LEAST_SCORE:
        return best
    if _is_turkish(_OTHERS.sub("", sample.decode("cp1254", "ignore"))):
        return "cp1254"
    if _is_latin(sample) and (codec := _find_latin(sample)):
        return codec
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
    if found := _find_latin(sample):
        return found
    if codec != "cp1250":
        raise UnicodeError("Its encoding is not known: save it as UTF-8.")
    return codec


def _score(sample: bytes, codec: str) -> float | None:
    """Return how well letters fit their frequency in a script; `None` if they form no words."""
    if not _fits(sample, codec):
        return None
    text, letters = sample.decode(codec), _LETTERS[codec]
    words = [*filter(None, _OTHERS.split(text))]
    found = [letters.find(it.lower()) for word in words for it in word]
    misfits = found.count(-1) + len(_MISFIT.findall(text))
    if len(found) < 2 * len(words) or not words or misfits * 30 > len(found):
        return None
    norm = log(sum(1 / (rank + 2) for rank in range(len(letters))))
    prior = 0.2 if codec == "cp1251" else 0  # of a few letters, more are of Russian
    return prior - sum(log(rank + 2) for rank in found if rank >= 0) / len(found) - norm


def _is_turkish(letters: str) -> bool:
    """Return whether letters are those of Turkish for the most part, and not only a few kinds."""
    count = sum(it in _TURKISH for it in letters)
    kinds = {*"ğışĞİŞ"} & {*letters}
    return count >= 0.9 * len(letters) and ("İ" in kinds or len(kinds) > 1)


def _is_latin(sample: bytes) -> bool:
    """Return whether letters that are not ASCII are few, and in words with others."""
    head = sample[:_HEAD].decode("cp1252", "replace")
    words = "".join(it for it in _SIGNS.sub(" ", head).split() if not it.isascii())
    letters = sum(it > "\x7f" for it in words)
    return 2 * letters <= len(words) and 3 * letters <= len(head)


def _find_latin(sample: bytes) -> str:
    """Return the codec by which the words of a text fit a language best, or an empty string."""
    costs: dict[float, str] = {}
    for codec, languages in _LATIN.items():
        if not _fits(sample, codec):
            continue
        text = _SIGNS.sub(" ", sample[:_HEAD].decode(codec)).lower()
        strange = len(_STRANGE.findall(text))
        counts = Counter("".join(it for it in text.split() if not it.isascii()))
        for letters in languages:
            ranks = {it: letters.index(it) for it in counts if it in letters}
            misfits = strange + counts.total() - sum(counts[it] for it in ranks)
            if misfits * 10 <= counts.total():
                cost = sum(log(rank + 2) * counts[it] for it, rank in ranks.items())
                costs[cost + misfits * _MISFIT_COST + _HANDICAPS[codec]] = codec
    return costs[min(costs)] if costs else ""


def _fits(sample: bytes, codec: str) -> bool:
    return "\ufffd" not in sample.decode(codec, "replace")


def _is_rare_korean(sample: bytes) -> bool:
    """Return whether most letters are those that only cp949 has, and Korean hardly."""
    text = "".join(it for it in sample.decode("cp949", "ignore") if it > "\x7f")
    return len(text.encode("euc_kr", "ignore")) > 5 * len(text)  # these have eight bytes, not two
