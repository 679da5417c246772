"""The tables of a data analyst as its prompt describes them, for the demo model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from copilot_runtime.adapters.demo.arguments import split_words

_BLOCK = re.compile(r"<schema>\n(.*?)\n</schema>", re.DOTALL)
_TABLE = re.compile(r"^CREATE TABLE (\S+) \([^\n]*\n(.*?)^\);$", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^  ("[^"]+"|\S+) ([A-Z][^,\n]*?(?:\([^)\n]*\))?),?(?: -- (.*))?$')
_OTHER = re.compile(r"^- (\w+)\((.*)\)$", re.MULTILINE)
_QUOTED = re.compile(r"'((?:[^']|'')*)'(?=, |$)")
_PAIR = re.compile(r'("[^"]+"|[^+\s]\S*) (.+)')
_COMMA = re.compile(r", (?![^(]*\))")
_NUMBER = re.compile(r"^(?:U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DOUBLE|FLOAT|REAL|DECIMAL)\b")
_TIME = re.compile(r"^(?:DATE|TIMESTAMP)")
_ENDINGS = re.compile(r"(?:ing|ed|es|s)$")
_PHRASES: Mapping[str, str] = {
    "comes back": "returned",
    "come back": "returned",
    "came back": "returned",
    "sent back": "returned",
    "sales": "revenue",
    "turnover": "revenue",
    "bots": "source name",
    "bot": "source name",
}
UNITS = ("day", "week", "month", "quarter", "year")
"""Units of time by which rows are grouped."""

_SHORTEST = 5
"""Letters of a first word that stands for the whole name of a column."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, with its synonyms and sample values."""

    name: str
    type: str
    synonyms: Sequence[str] = ()
    values: Sequence[str] = ()

    @property
    def is_number(self) -> bool:
        """Whether it can be summed up: no ids."""
        return bool(_NUMBER.match(self.type)) and not self.name.lower().endswith("id")

    @property
    def is_time(self) -> bool:
        """Whether it holds dates or times."""
        return bool(_TIME.match(self.type))

    def find(self, words: Sequence[str]) -> int | None:
        """Return the index of the word that names the column, or `None`."""
        name = stem(self.name)
        for phrase in (name, *map(stem, self.synonyms)):
            width = len(phrase)
            for at in range(len(words) - width + 1):
                if phrase and list(words[at : at + width]) == phrase:
                    return at
        first = name[0] if len(name) > 1 else ""
        return list(words).index(first) if len(first) >= _SHORTEST and first in words else None


@dataclass(frozen=True, slots=True)
class Table:
    """A table."""

    name: str
    columns: Sequence[Column]

    @property
    def time(self) -> Column | None:
        """The first column with dates or times, or `None`."""
        return next((column for column in self.columns if column.is_time), None)


def read_schema(texts: Sequence[str]) -> Sequence[Table]:
    """Return the tables that a prompt describes, the one of the question first."""
    block = next((found[1] for text in texts if (found := _BLOCK.search(text))), "")
    tables = [
        Table(name.strip('"'), [*filter(None, map(_read_column, body.splitlines()))])
        for name, body in _TABLE.findall(block)
    ]
    return tables + [Table(name, _read_columns(body)) for name, body in _OTHER.findall(block)]


def find_table(text: str, tables: Sequence[Table]) -> Table:
    """Return the table that a question is about: the first of those that it names most of."""
    words = [word for word in stem(text) if word not in UNITS]

    def score(table: Table) -> int:
        named = sum(column.find(words) is not None for column in table.columns)
        valued = sum(len(find_values(text, column)) for column in table.columns)
        return named + valued + 2 * bool(set(stem(table.name)) & set(words))

    return max(tables, key=score)


def find_values(text: str, column: Column) -> Sequence[str]:
    """Return the values of a column that a question names, in its order."""
    lower = text.lower()
    named = [
        value
        for value in column.values
        if len(value) > 1 and re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", lower)
    ]
    return sorted(named, key=lambda value: lower.index(value.lower()))


def stem(text: str) -> list[str]:
    """Return the stems of a text's words, with synonyms replaced."""
    lower = text.lower()
    for phrase, word in _PHRASES.items():
        lower = re.sub(rf"\b{phrase}\b", word, lower)
    return [_ENDINGS.sub("", word) if len(word) > 4 else word for word in split_words(lower)]


def _read_column(line: str) -> Column | None:
    if (found := _COLUMN.match(line)) is None:
        return None
    name, type, comment = found.groups()
    parts = dict(
        part.split(": ", 1) for part in (comment or "").split(" | ") if ": " in part
    )  # such as `values: a, b` and `also: c`
    return Column(
        name.strip('"'),
        type,
        parts["also"].split(", ") if "also" in parts else (),
        _read_values(parts.get("values", "")),
    )


def _read_values(text: str) -> Sequence[str]:
    """Parse a list of values, quoted or not."""
    if quoted := _QUOTED.findall(text):
        return [value.replace("''", "'") for value in quoted]
    return text.removesuffix(", …").split(", ") if text else ()


def _read_columns(body: str) -> Sequence[Column]:
    parts = filter(None, map(_PAIR.match, _COMMA.split(body)))
    return [Column(part[1].strip('"'), part[2]) for part in parts]
