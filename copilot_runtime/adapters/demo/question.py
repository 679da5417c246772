"""Reads a question about a table for the demo model, and lists the words that it left unread."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from copilot_runtime.adapters.demo.matching import split_words
from copilot_runtime.adapters.demo.schema import (
    Column,
    Table,
    quote_name,
    replace_phrases,
    stem,
    take_values,
)

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
_PERIOD = re.compile(
    rf"\b(?:(since|before|after) )?(?:({'|'.join(MONTHS)}) )?((?:19|20)\d\d)"
    r"(?:-(\d\d)(?:-(\d\d))?)?\b(?!-)",
    re.IGNORECASE,
)
UNITS = ("day", "week", "month", "quarter", "year")
_RATIOS = re.compile(r"(?:score|rate|latency|days|discount|price|share|value|percent|pct)$")
_UNITS_SOLD = ("quantity", "units")
_AMOUNTS = ("total", "amount", "revenue", "sales", "turnover", *_UNITS_SOLD)
"""Names of numbers that "sells most" may mean, the likeliest first."""


def list_stems(words: str) -> frozenset[str]:
    """Return the stems of some words."""
    return frozenset(stem(words))


HIGHEST = list_stems("most best top highest largest biggest greatest maximum max")
LOWEST = list_stems("least worst lowest smallest fewest minimum min bottom")
_SELLING = list_stems("sell sold")
_EARNING = list_stems("sale earn earned spend spent revenue turnover amount value") | _SELLING
"""Stems that an amount of money has for its synonyms, and a number of units has not."""
_PER = list_stems("per each every")
_EACH = _PER | {"by"}
_GROUPING = _EACH | {"which", "what"}
_DISTINCT = list_stems("different distinct unique")
COUNTING = list_stems("many number count")
_ROWS = list_stems("row record entry")
_UNSAID = list_stems(
    "a all an and any are as at come comes can could data did do does for from give had has have "
    "how i in is it its list made make many me much my often of on our please show table tell that "
    "the their there they this to us was we were what with you your"
)
_EVERY = {"daili": "day", "weekli": "week", "monthli": "month", "yearli": "year"}


class Group(NamedTuple):
    """A column or unit of time by which rows are grouped."""

    name: str
    sql: str
    is_time: bool = False
    is_ranked: bool = False
    """Whether the first or the last group is asked for, as in "which region"."""
    is_each: bool = False
    """Whether it is a unit that a number is counted for, as in "per day"."""


class _Mention(NamedTuple):
    """A column that a question names, and the places of its words."""

    column: Column
    places: range


def read_question(text: str, table: Table) -> "Question":
    """Return a question about a table, with its values and its period taken out of the words."""
    text = replace_phrases(text)
    text = re.sub(rf"\b({re.escape(table.name)})\.\w+", r"\1", text, flags=re.IGNORECASE)
    name = rf"\b(rows?|records?|entries)( are| there are)? (?:of|in) {re.escape(table.name)}\b"
    text = re.sub(name, r"\1", text, flags=re.IGNORECASE)  # a column may have the table's name
    conditions: list[str] = []
    period = _PERIOD.search(text)
    if period is not None and table.time is not None and (limits := _read_period(period)):
        text = text[: period.start()] + text[period.end() :]
        conditions = [f"{quote_name(table.time.name)} {limit}" for limit in limits]
    values: dict[str, Sequence[str]] = {}
    for column in table.columns:
        found, text = take_values(text, column)
        values |= {column.name: found} if found else {}
    return Question(table, text, values, conditions)


def _read_period(found: re.Match[str]) -> Sequence[str]:
    """Return comparisons for a year, a month or a day; none if there is no such day."""
    opening, name, year, number, day = found.groups()
    month = MONTHS.index(name.lower()) + 1 if name else int(number or 1)
    try:
        first = date(int(year), month, int(day or 1))
    except ValueError:
        return ()
    unit = "DAY" if day else "MONTH" if name or number else "YEAR"
    start, end = f"DATE '{first}'", f"DATE '{first}' + INTERVAL 1 {unit}"
    limits = {"since": [f">= {start}"], "before": [f"< {start}"], "after": [f">= {end}"]}
    return limits.get((opening or "").lower(), [f">= {start}", f"< {end}"])


class Question:
    """The words of a question about a table. What a rule takes, it has understood."""

    def __init__(
        self, table: Table, text: str, values: Mapping[str, Sequence[str]], period: Sequence[str]
    ) -> None:
        self.table = table
        self.values = values
        self.period = period
        """Conditions on the time."""
        key = stem(table.key.name)[:-1] if table.key else []
        numbers = {word for column in table.columns if column.note for word in stem(column.name)}
        self.rows = (_ROWS | {*stem(table.name), *key}) - numbers
        """Stems of what rows are called: words of the table's name, and of its key.

        A column of numbers that is a text is meant before the rows, though it cannot be added up.
        """
        self._words = split_words(text)
        self._stems = [stem(word)[0] for word in self._words]
        self._left = {*range(len(self._words))}

    def take(self, stems: Collection[str]) -> Sequence[int]:
        """Return the places of some stems."""
        places = [at for at in sorted(self._left) if self._stems[at] in stems]
        self._left -= {*places}
        return places

    def return_places(self, places: Iterable[int]) -> None:
        """Mark the words at some places as not understood."""
        self._left |= {*places}

    def list_unknown(self) -> list[str]:
        """Return the words that no rule has understood."""
        left = [at for at in sorted(self._left) if self._stems[at] not in _UNSAID]
        left = [at for at in left if self._stems[at] not in _GROUPING] or left
        return [self._words[at] for at in left]

    def list_values(self) -> list[str]:
        """Return the conditions on values."""
        quoted = {
            name: ", ".join("'" + value.replace("'", "''") + "'" for value in values)
            for name, values in self.values.items()
        }
        return [f"{quote_name(name)} IN ({values})" for name, values in quoted.items()]

    def _take_others(self, stems: Collection[str]) -> Sequence[int]:
        """Return the places of some stems, but not of those that name a column."""
        named = {at for mention in self._list_mentions() for at in mention.places} & self._left
        self._left -= named
        places = self.take(stems)
        self._left |= named
        return places

    def take_distinct(self) -> Column | None:
        """Return the column whose values are counted, as in "how many different products"."""
        starts = [at + 1 for at, word in enumerate(self._stems) if word in COUNTING]
        for mention in self._list_mentions() if starts else ():
            between = self._stems[starts[0] : mention.places[0]]
            if mention.places[0] < starts[0] or not {*between} <= _DISTINCT | {"of", "the"}:
                continue
            if mention.column.is_number or mention.column.is_flag or mention.column.note:
                break
            self._left -= {*mention.places}
            self.take(_DISTINCT)
            self._take_others(_SELLING)
            return mention.column
        return None

    def take_groups(self) -> Sequence[Group]:
        """Return the groups of "by region and month", "which region" and "top 3 regions"."""
        groups: dict[int, Group] = {}
        mentions = {mention.places[0]: mention for mention in self._list_mentions()}
        for at, word in enumerate(self._stems):
            unit = _EVERY.get(word, word if word in UNITS else "")
            before = "per" if word in _EVERY else self._find_opening(at, groups)
            is_ranked = bool(before) and before not in _EACH
            is_each = before in _PER
            mention = mentions.get(at)
            if unit and self.table.time is not None and before:
                group = group_by_time(self.table.time, unit)
                groups[at] = group._replace(is_ranked=is_ranked, is_each=is_each)
                self._left.discard(at)
            elif mention is None or mention.column.is_number or mention.column.is_flag:
                continue
            elif is_ranked and mention.column.note:
                continue  # "what are the sales" asks for a number, though the column is a text
            elif before or self._is_condition(mention.column):  # "the Online store" is no group
                name = mention.column.name
                is_time = mention.column.is_time
                group = Group(name, quote_name(name), is_time, is_ranked, is_each and not is_time)
                groups |= {mention.places[-1]: group} if before else {}
                self._left -= {*mention.places}
        if groups:
            self.take(_GROUPING)
        return [*groups.values()]

    def _is_condition(self, column: Column) -> bool:
        """Return whether a column names a value, as in "the Online store", or the period."""
        return column.name in self.values or (column.is_time and bool(self.period))

    def _find_opening(self, at: int, groups: Collection[int]) -> str:
        """Return the stem that makes a column a group, such as "by", or an empty string."""
        for before in range(at - 1, -1, -1):
            word = self._stems[before]
            if word in _GROUPING:
                return word
            if before in groups:
                return "by"  # "by region and month"
            if word in HIGHEST | LOWEST:
                return "" if groups else word  # "which region has most products" has one group
            if word not in _UNSAID and word != "sell" and not word.isdigit():
                break
        return ""

    def take_number(self) -> Column | None:
        """Return the number that is named, or the amount that is meant."""
        named = [mention for mention in self._list_mentions() if mention.column.is_number]
        if named and named[0].column.name.lower() == "total":
            after = named[0].places[-1] + 1
            numbers = {mention.places[0] for mention in named}
            is_sum = after in numbers or self._stems[after : after + 1] in (["number"], ["count"])
            named = named[is_sum:]  # "the total quantity", "the total number"
        if named:
            self._left -= {*named[0].places}
            if named[0].column.name.lower() in _AMOUNTS:
                self._take_others(_list_synonyms(named[0].column))
            return named[0].column
        starts = [at + 1 for at, word in enumerate(self._stems) if word in COUNTING]
        noun = [word for word in self._stems[starts[0] :] if word != "of"][:1] if starts else []
        amount = guess_amount(self.table, _UNITS_SOLD if starts else _AMOUNTS)
        if amount is None or {*noun} & self.rows:  # "how many sales"
            return None
        if not self._take_others(_list_synonyms(amount)):
            return None
        self._take_others({"unit"})
        return amount

    def find_only_number(self) -> Column | None:
        """Return the number of the table that can be added up, if it has only one."""
        numbers = [one for one in self.table.columns if one.is_number and one != self.table.key]
        return numbers[0] if len(numbers) == 1 and not is_ratio(numbers[0]) else None

    def take_flag(self) -> Column | None:
        """Return the column of yes and no that is named."""
        for mention in self._list_mentions():
            if mention.column.is_flag:
                self._left -= {*mention.places}
                return mention.column
        return None

    def take_limit(self) -> int | None:
        """Return the number of "top 3 regions"."""
        places = self.take({word for word in self._stems if word.isdigit()})
        return int(self._words[places[0]]) if places else None

    def _list_mentions(self) -> Iterator[_Mention]:
        """Yield the columns that are named by words which are not understood yet."""
        end = 0
        for at in sorted(self._left):
            scores = [(column.match(self._stems[at:]), column) for column in self.table.columns]
            score, column = max(scores, key=lambda pair: pair[0])
            is_row = score == 1 and column == self.table.key  # "orders" of order_id
            if at >= end and score and not is_row:
                end = at + (score + 1) // 2
                yield _Mention(column, range(at, end))


def group_by_time(column: Column, unit: str) -> Group:
    """Return groups of a unit of time."""
    return Group(unit, f"date_trunc('{unit}', {quote_name(column.name)})", is_time=True)


def guess_amount(table: Table, names: Sequence[str] = _AMOUNTS) -> Column | None:
    """Return the number that "sells most" may mean, by its name: no tax_amount or total_cost."""
    plain = {*stem(" ".join(_AMOUNTS)), *_SELLING, *stem(table.name)}
    numbers = [one for one in table.columns if one.is_number and not is_ratio(one)]
    numbers = [one for one in numbers if plain >= {*stem(one.label)}]
    likely = (one for name in names for one in numbers if stem(name)[0] in stem(one.label))
    return next(likely, None)


def _list_synonyms(amount: Column) -> Collection[str]:
    """Return the stems that may stand for an amount."""
    is_number = {*stem(amount.label)} & {*stem(" ".join(_UNITS_SOLD))}
    return _SELLING if is_number else _EARNING


def is_ratio(column: Column) -> bool:
    """Return whether the sum of a number means nothing, by its name: it is averaged then."""
    return bool(_RATIOS.search(column.name))
