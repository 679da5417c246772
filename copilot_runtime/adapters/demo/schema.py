"""The tables that the analyst's prompt describes, read for the demo model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from copilot_runtime.adapters.demo.matching import split_words

_BLOCK = re.compile(r"<schema>\n(.*?)\n</schema>", re.DOTALL)
_TABLE = re.compile(r"^CREATE TABLE (\S+) \([^\n]*\n(.*?)^\);$", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^  ("[^"]+"|\S+) ([A-Z][^,\n]*?(?:\([^)\n]*\))?),?(?: -- (.*))?$')
_LABEL = re.compile(r"^-- Dataset .+: DuckDB table ", re.MULTILINE)
_ABOUT = re.compile(r"^-- About: (.*)$", re.MULTILINE)
_WITHOUT = "-- Rows without totals: WHERE "
_TOTALS = re.compile(rf"^{_WITHOUT}(.*)$", re.MULTILINE)
_LIST = re.compile(r" IN \((.*?)\)(?: AND |$)")
_NOTE = r"'{}' (is a text: .*?)\.(?: |$)"
_CATALOG = re.compile(r"^## Metric catalog\n(.*?)^$", re.DOTALL | re.MULTILINE)
_METRIC = re.compile(
    r"^- (\w+) \([^)\n]*\): (?:.*; )?SQL ([^…\n]+) FROM ([^\s;]+)(?:; WHERE ([^…\n]+))?$",
    re.MULTILINE,
)
_OTHER = re.compile(rf"^- (\w+)\((.*?)\)(?: {_WITHOUT}(.*))?$", re.MULTILINE)
_QUOTED = re.compile(r"'((?:[^']|'')*)'(?=, |$)")
_PAIR = re.compile(r'("[^"]+"|[^+\s]\S*) (.+)')
_COMMA = re.compile(r", (?![^(]*\))")
_NUMBER_TYPE = re.compile(
    r"^(?:U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DOUBLE|FLOAT|REAL|DECIMAL)\b"
)
_TIME = re.compile(r"^(?:DATE|TIMESTAMP)")
_UNIT = re.compile(r"(?<=\w)\s*[(\[][^)\]]*[)\]]$")
_KEY = re.compile(r"(?<!pa)(?<!b)id$", re.IGNORECASE)  # neither amount_paid nor bid
_ENDINGS = re.compile(r"(?:ing|ed|es|s|e)$")
_PHRASES: Mapping[str, str] = {
    "comes back": "returned",
    "come back": "returned",
    "came back": "returned",
    "sent back": "returned",
    "over time": "by month",
    "in total": "altogether",
    "bots": "source name",
    "bot": "source name",
}
_SHORTEST = 4
"""Letters of a last word that stands for the whole name of a column; a first one has more."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, with its synonyms and sample values."""

    name: str
    type: str
    synonyms: Sequence[str] = ()
    values: Sequence[str] = ()
    note: str = ""
    """Why it is a text, from the description."""
    metric: str = ""
    """The SQL of the metric of this name in the operator's catalogue."""
    conditions: Sequence[str] = ()
    """The filters of that metric."""

    @property
    def label(self) -> str:
        """Its name without a unit, such as "Sales" for "Sales (EUR)"."""
        return _UNIT.sub("", self.name)

    @property
    def is_number(self) -> bool:
        """Whether it can be summed up: no ids."""
        return self.is_metric or (bool(_NUMBER_TYPE.match(self.type)) and not self.is_key)

    @property
    def is_metric(self) -> bool:
        """Whether it is a metric, and no column of the table."""
        return not self.type

    @property
    def is_time(self) -> bool:
        """Whether it holds dates or times."""
        return bool(_TIME.match(self.type))

    @property
    def is_flag(self) -> bool:
        """Whether it holds yes and no."""
        return self.type == "BOOLEAN"

    @property
    def is_key(self) -> bool:
        """Whether it holds the ids of something."""
        return bool(_KEY.search(self.name))

    def match(self, words: Sequence[str]) -> int:
        """Return how many words at the start of `words` name the column: twice that, less 1 for
        a part of a name. 0 if none does.
        """
        phrases = [stem(each) for each in (self.label, self.name, *self.synonyms)]
        whole = [len(phrase) for phrase in phrases if phrase and (*words[: len(phrase)],) == phrase]
        first, last = phrases[0][0] if phrases[0] else "", phrases[0][-1] if phrases[0] else ""
        parts = {first} if len(first) > _SHORTEST and not self.is_time else set[str]()
        parts |= {last} if len(last) >= _SHORTEST else set()
        is_part = bool(words) and words[0] in parts and not self.is_metric
        return 2 * max(whole) if whole else int(is_part)


@dataclass(frozen=True, slots=True)
class Table:
    """A table."""

    name: str
    columns: Sequence[Column]
    joined: str = ""
    """SQL after its name in `FROM`."""
    conditions: Sequence[str] = ()
    """SQL that leaves out the lines which sum up others."""
    is_other: bool = False
    """Whether the person has chosen another table."""

    @property
    def time(self) -> Column | None:
        """The first column with dates or times, or `None`."""
        return next((column for column in self.columns if column.is_time), None)

    @property
    def key(self) -> Column | None:
        """The column that identifies a row: the first one, if it holds ids."""
        return next((column for column in self.columns[:1] if column.is_key), None)

    def list_names(self) -> Sequence[str]:
        """Return its name and those of its columns."""
        return [self.name, *(name for one in self.columns for name in (one.name, *one.synonyms))]

    @property
    def sql(self) -> str:
        """The SQL behind `FROM`."""
        return quote_name(self.name) + self.joined


def read_schema(texts: Sequence[str]) -> Sequence[Table]:
    """Return the tables that a prompt describes, the one of the question first."""
    block = next((found[1] for text in texts if (found := _BLOCK.search(text))), "")
    about = found[1] if (found := _ABOUT.search(block)) else ""
    tables = [
        Table(name.strip('"'), [*filter(None, map(_read_column, body.splitlines()))])
        for name, body in _TABLE.findall(block)
    ]
    totals = _TOTALS.search(block)
    catalog = found[1] if (found := _CATALOG.search(block)) else ""
    tables = [_add_metrics(_describe_table(table, about, totals), catalog) for table in tables]
    is_other = bool(_LABEL.search(block))
    others = [
        Table(name, _read_columns(body), is_other=is_other, conditions=[totals] if totals else [])
        for name, body, totals in _OTHER.findall(block)
    ]
    return [*tables, *(_add_metrics(table, catalog) for table in others)]


def join_tables(tables: Sequence[Table]) -> Sequence[Table]:
    """Return each table with the texts of another one whose key it has, as orders of customers."""
    joins: list[Table] = []
    for table, other in ((one, two) for one in tables for two in tables if one is not two):
        names = {column.name for column in table.columns}
        if other.key is None or other.key.name not in names or other.key == table.key:
            continue
        shared = names & {column.name for column in other.columns}
        columns = [column for column in table.columns if column.name not in shared]
        # numbers of the other table would be added up once for each row of this one
        more = [one for one in other.columns if one.name not in shared and one.type == "VARCHAR"]
        joined = f" JOIN {other.sql} USING ({quote_name(other.key.name)})"
        is_other = table.is_other and other.is_other
        columns = [*columns, *more]
        joins.append(replace(table, columns=columns, joined=joined, is_other=is_other))
    return joins


def take_values(text: str, column: Column) -> tuple[Sequence[str], str]:
    """Return the values of a column that a question names, in its order, and the other words."""
    places: list[tuple[int, str]] = []
    for value in column.values:
        pattern = rf"(?<!\w){re.escape(value)}s?(?!\w)"
        if len(value) > 1 and (found := re.search(pattern, text, re.IGNORECASE)):
            places.append((found.start(), value))
            text = text[: found.start()] + " " * len(found[0]) + text[found.end() :]
    return [value for _, value in sorted(places)], text


def replace_phrases(text: str) -> str:
    """Return a question with the words of columns in place of usual phrases for them."""
    for phrase, word in _PHRASES.items():
        text = re.sub(rf"\b{phrase}\b", word, text, flags=re.IGNORECASE)
    return text


@lru_cache(1_000)
def stem(text: str) -> Sequence[str]:
    """Return the stems of a text's words."""
    words = [re.sub(r"y$", "ie", word) if len(word) > 3 else word for word in split_words(text)]
    return tuple(_ENDINGS.sub("", word) if len(word) > 3 else word for word in words)


def quote_name(name: str) -> str:
    """Return a name as SQL, in double quotes if necessary."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'


def _describe_table(table: Table, about: str, found: re.Match[str] | None) -> Table:
    """Return a table with what the prompt says about columns and about rows of totals."""
    lists: Sequence[str] = _LIST.findall(found[1]) if found else ()
    totals = [value for values in lists for value in _read_values(values)]
    columns = [
        replace(
            one,
            values=[value for value in one.values if value.strip(" :") not in totals],
            note=note[1] if (note := re.search(_NOTE.format(re.escape(one.name)), about)) else "",
        )
        for one in table.columns
    ]
    return replace(table, columns=columns, conditions=[found[1]] if found else [])


def _add_metrics(table: Table, catalog: str) -> Table:
    """Return a table with the metrics of its name: of the columns, or as further ones."""
    columns = {column.name: column for column in table.columns}
    for name, sql, of, where in _METRIC.findall(catalog):
        if of.lower() == table.name.lower():
            column = columns.get(name, Column(name, ""))
            columns[name] = replace(column, metric=sql, conditions=[f"({where})"] if where else [])
    return replace(table, columns=[*columns.values()])


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
