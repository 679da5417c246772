"""Translates simple questions about data into calls of the analyst's tools, for the demo model."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from copilot_runtime.adapters.demo.matching import Call, split_words
from copilot_runtime.base.jsonvalue import JsonObject, as_objects, get_text

_BLOCK = re.compile(r"<schema>\n(.*?)\n</schema>", re.DOTALL)
_TABLE = re.compile(r"^CREATE TABLE (\S+) \([^\n]*\n(.*?)^\);$", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^  ("[^"]+"|\S+) ([A-Z][^,\n]*?(?:\([^)\n]*\))?),?(?: -- (.*))?$')
_OTHER = re.compile(r"^- (\w+)\((.*)\)$", re.MULTILINE)
_QUOTED = re.compile(r"'((?:[^']|'')*)'(?=, |$)")
_PAIR = re.compile(r'("[^"]+"|[^+\s]\S*) (.+)')
_COMMA = re.compile(r", (?![^(]*\))")
_NUMBER_TYPE = re.compile(
    r"^(?:U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DOUBLE|FLOAT|REAL|DECIMAL)\b"
)
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
        return bool(_NUMBER_TYPE.match(self.type)) and not self.name.lower().endswith("id")

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


_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)}) (\d{{4}})\b", re.IGNORECASE)
_GROUP = re.compile(r"\b(?:by|per|each|every|which|what)\s+(?:the\s+)?(\w+(?:\s+\w+)?)", re.I)
_SAVE = re.compile(r"\bsave\b.*\bas (?:a data ?set )?[\"“]?(\w+)[\"”]?", re.IGNORECASE)
_AVERAGES = re.compile(r"(?:score|rate|latency|days|discount|price|share|value)$")
_AMOUNTS = frozenset(
    {
        *("sell", "sells", "sold", "earn", "earns", "spend", "spends", "bring", "brings"),
        *("total", "amount", "sales", "revenue", "turnover", "price", "sum"),
    }
)
"""Words of which a question means some amount, and names that amounts have."""
_DEMO = "(I am the demo model, which follows rules. A real model would say what it means.)"
_TOP = 20


def plan_call(text: str, tables: Sequence[Table], tools: Collection[str]) -> Call | None:
    """Return the call that answers a question about tables, or `None` if it is not recognised."""
    table = find_table(text, tables)
    call = _plan(text, table, set(split_words(text)))
    return call if call is not None and call.tool in tools else None


def describe_result(name: str, output: JsonObject) -> str:
    """Return the demo model's text about a result of the analyst's tools, or an empty string."""
    if "error" in output:
        return ""
    rows = as_objects(output.get("rows"))
    if name == "plot_data":
        return f"Here is the chart. {_DEMO}"
    if name == "download_data":
        return f"The file {get_text(output, 'filename')} is ready. {_DEMO}"
    if name in ("run_sql", "analyze_data") and rows:
        first = ", ".join(f"{_name(key)} **{_show(value)}**" for key, value in rows[0].items())
        count = f"{len(rows)} rows; the first: " if len(rows) > 1 else ""
        return f"{count}{first}. {_DEMO}"
    return f"Here is what I found. {_DEMO}" if name in _FOUND else ""


_FOUND = ("compare_data", "summarize_data", "save_as_dataset", "query_data", "query_kpi_data")


def _plan(text: str, table: Table, words: set[str]) -> Call | None:
    if saved := _SAVE.search(text):
        return Call("save_as_dataset", {"name": saved[1], "sql": _select_rows(text, table)})
    if words & {"export", "download", "csv"}:
        name = {"filename": table.name, "format": "json" if "json" in words else "csv"}
        return Call("download_data", {"sql": _select_rows(text, table), **name})
    if "compare" in words and (comparison := _compare(text, table)):
        return comparison
    if words & {"summarize", "summarise", "describe"}:
        return Call("summarize_data", {"table": table.name})
    is_chart = bool(words & {"chart", "plot", "graph", "draw", "trend", "diagram"})
    metric, group = _find_metric(text, table), _find_group(text, table)
    if group is None and is_chart and table.time is not None:
        group = _group_by_time(table.time, "month")
    if group is None:
        is_total = metric is not None or {"how", "many"} <= words
        return Call("run_sql", {"sql": _aggregate(text, table, metric, None)}) if is_total else None
    sql = _aggregate(text, table, metric, group)
    if not is_chart:
        return Call("run_sql", {"sql": sql})
    title = f"{_name(_name_metric(text, metric)).capitalize()} by {_name(group.name)}"
    return Call(
        "plot_data",
        {
            "chart_type": "line" if group.is_time else "bar",
            "sql": sql,
            "x_column": group.name,
            "y_column": _name_metric(text, metric),
            "title": title,
        },
    )


class _Group(NamedTuple):
    name: str
    sql: str
    is_time: bool = False


def _find_group(text: str, table: Table) -> _Group | None:
    for found in _GROUP.finditer(text):
        words = stem(found[1])
        if words[0] in UNITS and table.time is not None:
            return _group_by_time(table.time, words[0])
        for column in table.columns:
            if column.find(words) == 0 and not column.is_number:
                return _Group(column.name, _quote(column.name))
    return None


def _group_by_time(column: Column, unit: str) -> _Group:
    return _Group(unit, f"date_trunc('{unit}', {_quote(column.name)})", is_time=True)


def _find_metric(text: str, table: Table) -> Column | None:
    """Return the number, or else the yes or no, that a question names first."""
    words = stem(text)
    places = [(column.find(words), column) for column in table.columns]
    named = sorted(((at, c) for at, c in places if at is not None), key=lambda pair: pair[0])
    numbers = [column for _, column in named if column.is_number]
    flags = [column for _, column in named if column.type == "BOOLEAN"]
    if not numbers and not flags and _AMOUNTS & set(split_words(text)):
        return _guess_amount(table)
    return next(iter([*numbers, *flags]), None)


def _guess_amount(table: Table) -> Column | None:
    """Return the number that "sells most" may mean: one that is named as amounts are, or any."""
    numbers = [column for column in table.columns if column.is_number]
    likely = [column for column in numbers if _AMOUNTS & set(stem(column.name))]
    return next(iter([*likely, *numbers]), None)


def _name_metric(text: str, metric: Column | None) -> str:
    if metric is None:
        return "count"
    if metric.type == "BOOLEAN":
        return f"{metric.name}_share"
    return f"average_{metric.name}" if _is_average(text, metric) else metric.name


def _is_average(text: str, metric: Column) -> bool:
    words = set(split_words(text))
    return (
        bool(words & {"average", "mean"} or _AVERAGES.search(metric.name)) and "total" not in words
    )


def _aggregate(text: str, table: Table, metric: Column | None, group: _Group | None) -> str:
    name = _name_metric(text, metric)
    if metric is None:
        value = "COUNT(*)"
    elif metric.type == "BOOLEAN":
        value = f"AVG(CASE WHEN {_quote(metric.name)} THEN 1.0 ELSE 0.0 END)"
    else:
        value = f"{'AVG' if _is_average(text, metric) else 'SUM'}({_quote(metric.name)})"
    column = ""
    if group is not None:
        alias = _quote(group.name)
        column = f"{group.sql}, " if group.sql == alias else f"{group.sql} AS {alias}, "
    sql = (
        f"SELECT {column}{value} AS {_quote(name)}\nFROM {_quote(table.name)}{_filter(text, table)}"
    )
    if group is None:
        return sql
    if group.is_time:
        return f"{sql}\nGROUP BY ALL\nORDER BY {_quote(group.name)}"
    way = "ASC" if set(split_words(text)) & {"least", "lowest", "worst", "fewest"} else "DESC"
    return f"{sql}\nGROUP BY ALL\nORDER BY {_quote(name)} {way}\nLIMIT {_TOP}"


def _select_rows(text: str, table: Table) -> str:
    order = f"\nORDER BY {_quote(table.time.name)}" if table.time else ""
    return f"SELECT *\nFROM {_quote(table.name)}{_filter(text, table)}{order}"


def _filter(text: str, table: Table) -> str:
    """Return the condition of a question: a month, and values that it names."""
    conditions: list[str] = []
    if (month := _MONTH.search(text)) and table.time is not None:
        first = f"{month[2]}-{_MONTHS.index(month[1].lower()) + 1:02}-01"
        when = _quote(table.time.name)
        conditions += [
            f"{when} >= DATE '{first}'",
            f"{when} < DATE '{first}' + INTERVAL 1 MONTH",
        ]
    for column in table.columns:
        if values := find_values(text, column):
            quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
            conditions.append(f"{_quote(column.name)} IN ({quoted})")
    return f"\nWHERE {' AND '.join(conditions)}" if conditions else ""


def _compare(text: str, table: Table) -> Call | None:
    for column in table.columns:
        match find_values(text, column):
            case [first, second, *_]:
                metric = _find_metric(text, table)
                groups = {"group_column": column.name, "group_a": first, "group_b": second}
                metrics = {"metrics": [metric.name]} if metric else {}
                return Call("compare_data", {**groups, **metrics, "table": table.name})
            case _:
                pass
    return None


def _quote(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'


def _name(name: str) -> str:
    return name.replace("_", " ")


def _show(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
