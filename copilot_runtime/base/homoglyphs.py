# ruff: noqa: RUF001  # letters that look like others are what this file is about
"""Homoglyph normalisation: alternative readings of a text with look-alike letters and symbols.

Words that mix two alphabets do not occur in natural text, so their letters are read by shape. A
word in one other alphabet is read by shape only if each of its letters resembles a Latin one: it
may be an ordinary word of that language. Letters of living Latin alphabets, such as `ø`, are not
changed: they make another word.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, product
from unicodedata import combining, normalize

_TWINS = {
    # Cyrillic, Greek
    **dict(
        zip("аеорсухѕіјԁһԛԝӏѵАВЕЅІЈКМНОРСТУХԚԜѴ", "aeopcyxsijdhqwlvabesijkmhopctyxqwv", strict=True)
    ),
    **dict(zip("ονακρτυχιΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ovakptuxiabezhikmnoptyx", strict=True)),
    # Armenian, Cherokee
    **dict(zip("ոսօհցզ", "nuohgq", strict=True)),
    **dict(zip("ᎠᎡᎢᎥᎪᎫᎬᎳᎷᎻᎽᏀᏃᏒᏔᏕᏙᏚᏞᏟᏢᏦᏧᏴ", "drtiajewmhygzrwsvslcpkdb", strict=True)),
    # small capitals, and the alphabet of phonetics
    **dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True)),
    **dict(zip("ɑɡɩʋɨɱɲʂʈʉʐ", "agivimnstuz", strict=True)),
}
"""Letters that look like a Latin letter, mapped to it."""

_COUSINS = {
    **dict(zip("вгёзикмнптьяґїҽғҝӕ", "breeukmhntbrriefka", strict=True)),
    **dict(zip("βγεημπσςωλδθ", "byenunoswldo", strict=True)),
}
"""Letters that pass for a Latin letter in a word with other look-alikes."""

_SIGNS = {"0": "o", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "@": "a", "$": "s", "€": "e"}
_UPRIGHT = "1!|¡"
"""Symbols that stand for `i` or `l`."""

_SIGN = re.compile(rf"[1{re.escape(''.join(_SIGNS))}]|(?<=\w)[!|¡](?=\w)")
_LETTER = re.compile(r"[^\W\d_]")
_LATE_CAPITAL_I = re.compile(r"(?<=[a-z])I+")
_EDGES = re.compile(r"\A[\W_]+|[\W_]+\Z")

_MOST_UPRIGHT = 4
"""Maximum number of symbols per word that may be `i` or `l`: each doubles the spellings."""
_MOST_SIGNED = 1000
"""Maximum number of words with several such symbols that are spelled in all ways."""
_MARGIN = 200
"""Characters at each end of a text that are joined with the neighbouring text."""
_MOST_PIECES = 32
"""Maximum number of texts over which one word may be split."""


def list_readings(text: str) -> Iterator[str]:
    """Yield the readings of a text that differ from the text itself."""
    words = text.split()
    latin = words if text.isascii() else [*map(_read_word, words)]
    if latin != words:
        yield " ".join(latin)
    places = [at for at, word in enumerate(latin) if not word.isalpha() and _is_spelled(latin, at)]
    spelled = " ".join(_replace_signs(latin, places, "i"))
    if places:
        yield spelled
    # also a capital i passes for an l
    other = " ".join(_replace_signs(latin, places, "l"))
    other = _LATE_CAPITAL_I.sub(lambda found: "l" * len(found[0]), other)
    signed = (latin[at] for at in places if _has_several_upright(latin[at]))
    mixed = [word for found in islice(signed, _MOST_SIGNED) for word in _list_spellings(found)]
    if mixed or other != spelled:
        yield " ".join((other, *mixed))


def join_ends(texts: Sequence[str]) -> Iterator[str]:
    """Yield the ends of texts joined with the starts of their successors, without a gap.

    A text that is a single word may be the middle of a longer one: the start of the next text
    follows.
    """
    ends = [(_trim(text[:_MARGIN]), _trim(text[-_MARGIN:])) for text in map(str.strip, texts)]
    ends = [(head, tail) for head, tail in ends if head and tail]
    for at, (_, joined) in enumerate(ends):
        for head, tail in ends[at + 1 : at + _MOST_PIECES]:
            joined += head
            yield joined
            if head != tail or not head.isalnum():
                break


def read_by_shape(text: str) -> str:
    """Return a text with look-alike letters replaced by Latin ones, whatever its language."""
    return normalize("NFKC", text).translate(_BY_SHAPE)


def _trim(text: str) -> str:
    """Strip characters other than letters and digits from both ends."""
    return _EDGES.sub("", text)


def _read_word(word: str) -> str:
    word = _strip_accents(word)
    if word.isascii():
        return word
    compatible = normalize("NFKC", word)
    if any(letter.isascii() and letter.isalpha() for letter in compatible):
        return read_by_shape(word)
    latin = compatible.translate(_TWINS_TABLE)
    return latin if all(letter.isascii() or not letter.isalpha() for letter in latin) else word


def _strip_accents(word: str) -> str:
    """Return a word without accents if some are characters of their own: `b́omb`, but not `año`."""
    if not any(map(_is_accent, word)):
        return word
    return "".join(char for char in normalize("NFKD", word) if not _is_accent(char))


def _is_accent(char: str) -> bool:
    """Return whether a character is a mark over, under or across any letter, or a vowel point.

    Other marks, as those of Indian and Thai vowels, make another word.
    """
    place = combining(char)
    return place == 1 or 10 <= place <= 36 or place >= 200


def _is_spelled(words: Sequence[str], at: int) -> bool:
    """Return whether symbols stand for letters in a word: "b0mb", or the 0 in "b 0 m b"."""
    word = words[at]
    if len(word) > 1:
        return _SIGN.search(word) is not None and _LETTER.search(word) is not None
    around = (*words[max(0, at - 1) : at], *words[at + 1 : at + 2])
    is_sign = word in _SIGNS or word in _UPRIGHT
    return is_sign and any(len(it) == 1 and it.isalpha() for it in around)


def _replace_signs(words: Sequence[str], places: Sequence[int], upright: str) -> Sequence[str]:
    def spell(sign: re.Match[str]) -> str:
        return _SIGNS.get(sign[0], upright)

    spelled = [*words]
    for at in places:
        word = words[at]
        spelled[at] = _SIGN.sub(spell, word) if len(word) > 1 else _SIGNS.get(word, upright)
    return spelled


def _has_several_upright(word: str) -> bool:
    return len(word) <= _MARGIN and sum(map(word.count, _UPRIGHT)) > 1


def _list_spellings(word: str) -> Iterator[str]:
    """Yield the spellings of a word with each `i`/`l` symbol read as either letter."""
    pieces = re.split(f"[{_UPRIGHT}]", word, maxsplit=_MOST_UPRIGHT)
    for letters in product("il", repeat=len(pieces) - 1):
        joined = "".join(map("".join, zip(pieces, (*letters, ""), strict=True)))
        yield _SIGN.sub(lambda sign: _SIGNS.get(sign[0], "i"), joined)


def _add_capitals(letters: dict[str, str]) -> dict[int, str]:
    """Return a `str.translate` table in which unlisted capitals map as their small letters do."""
    capitals = {small.upper(): latin for small, latin in letters.items() if len(small.upper()) == 1}
    return {ord(letter): latin for letter, latin in {**capitals, **letters}.items()}


_TWINS_TABLE = _add_capitals(_TWINS)
_BY_SHAPE = _add_capitals({**_COUSINS, **_TWINS})
