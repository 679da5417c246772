"""The lines of a table that add up others, by their labels or by their numbers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate
from math import isclose
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.csv.readings import TypedColumn
from copilot_runtime.extensions.analyst.engine.datasets import (
    match_labels,
    quote_name,
    quote_text,
    quote_texts,
)

_NUMBERS = ("BIGINT", "DOUBLE", "DECIMAL", "FLOAT", "HUGEINT", "INTEGER", "SMALLINT")

_LABELS = 3
"""Columns of which the first value may be the label of a line."""
_PLACES = 8
"""Columns in which `Total` is a label also behind other values, as in `North, Total, 12`."""
_LINES = 1_000
"""Lines whose numbers are compared with those of others: more are no totals."""
_LEAST = 99
"""A larger number that adds up others hardly does so by coincidence."""
_BLOCKS = 100
"""Blocks of lines that a line may add up, beside all of them."""
_TOTALS = (
    *("total", "totals", "grand total", "subtotal", "sub-total", "total general"),
    *("gesamtbetrag", "rechnungsbetrag", "total amount", "amount due", "montant total"),
    *("sous-total", "sous total", "subtotale", "subtotaal", "summa", "celkem", "összesen", "i alt"),
    *("\u03c3", "\u2211", "toplam", "soma", "yhteensä"),
    *("summe", "gesamt", "gesamtsumme", "zwischensumme", "somme", "total général", "suma"),
    *("gesamtergebnis", "endsumme", "insgesamt", "eindtotaal", "общий итог", "genel toplam"),
    *("totale", "totaal", "razem", "всего", "итого", "合计", "总计", "合計", "小計", "합계"),
    *("carried forward", "brought forward", "carry forward", "balance forward", "übertrag"),
    *("ergebnis", "totalt", "samlet", "總計", "총계", "총합계", "الإجمالي", "total geral"),
    *("saldovortrag", "à reporter", "solde reporté", "riporto", "suma y sigue", "繰越", "次頁繰越"),
)
"""Labels of lines that add up others."""
_FIRST_LABELS = (
    "sum",
    *("average", "averages", "avg", "durchschnitt", "mittelwert", "moyenne", "promedio", "ø"),
    *("gemiddelde", "среднее", "平均", "平均値", "mean", "median", "mittel", "std. dev.", "sd"),
)
"""Labels only as the first value of a line; behind it, they may be a grade or a metric."""
_SUMS = (
    *("total", "subtotal", "sub-total", "grand total", "sum of", "summe", "zwischensumme"),
    *("gesamt", "итого", "合计", "总计", "合計", "小計", "kontostand", "saldo", "endsaldo"),
    *("anfangssaldo", "schlusssaldo", "solde", "balance", "opening balance", "closing balance"),
    *("saldo inicial", "saldo final", "残高"),
)
"""The beginnings of labels of lines that may add up others."""
_SUM_PATTERN = (
    rf"(?i)^({'|'.join(sorted({*_TOTALS, *_SUMS}))})(\W|$)|^\*+$"
    r"|^(all|alle|tous|todos|both sexes|المجموع|कुल)$"
    r"|\s(total|subtotal|gesamt|summe|insgesamt|ergebnis|totaal|razem|итого|всего)$|[计計]$"
)
_FIRST_PATTERN = rf"(?i)^({'|'.join(sorted(_FIRST_LABELS))})(\W|$)"


class Totals:
    """Finds the lines that add up others, and says so in `notes`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, notes: list[str]) -> None:
        self._connection = connection
        self._notes = notes
        self._found: dict[str, Counter[str]] = defaultdict(Counter)
        """Column, quoted → label → number of lines with it."""
        self._others = Counter[str]()
        """Labels of lines that may add up others → number of lines."""

    def find(self, part: str, columns: Sequence[str]) -> None:
        """Find the lines of a part of the texts that say that they add up others."""
        [(count,)] = self._connection.execute(f"SELECT count(*) FROM {part}").fetchall()
        texts = quote_texts((*_TOTALS, *_FIRST_LABELS))
        for at, column in enumerate(columns[:_PLACES]):
            rows: list[tuple[str, bool, int]] = self._connection.execute(
                f"SELECT trim({column}, ' :') AS word, {_are_empty(columns[:at])} AS is_first, "
                f"count(*) FROM {part} WHERE {_begins_with_letter(column)} "
                f"AND lower(trim({column}, ' :')) IN ({texts}) GROUP BY ALL ORDER BY 1"
            ).fetchall()
            totals = [it for it in rows if it[0].lower() in _TOTALS]
            is_kind = sum(it[2] for it in totals) * 5 > count * 2  # of lines, if it is of many
            found = Counter[str]()
            for word, is_first, number in rows if at < _LABELS else totals:
                if is_first or not (is_kind or word.lower() in _FIRST_LABELS):
                    found[word] += number
            if 0 < found.total() < count:
                self._found[column] += found

    def leave_out(self, texts: str, find_types: Callable[[str], Sequence[TypedColumn]]) -> None:
        """Leave out the lines whose labels stand in a column of dates or of numbers.

        It would be one of texts because of them. `find_types` returns the columns of a table.
        """
        if not self._found:
            return
        totals = {column: match_labels(column, found) for column, found in self._found.items()}
        others = f"(FROM {texts} WHERE NOT ({' OR '.join(totals.values())}))"
        types = {quote_name(one.name): one for one in find_types(others)}
        plain = [column for column, one in types.items() if one.type == "VARCHAR"]
        for column, is_total in totals.items():
            counts = self._count(texts, column, is_total)
            self._found[column] = counts
            if counts and types[column].type != "VARCHAR":
                self._connection.execute(f"DELETE FROM {texts} WHERE {is_total}")
                del self._found[column]
                self._notes.append(
                    f"Lines with {_join_words(counts)} in {types[column].name!r} are left out, as "
                    f"it is a {types[column].type}: {counts.total():,}."
                )
            elif counts and self._are_of_others(texts, is_total, plain[plain.index(column) + 1 :]):
                self._others += self._found.pop(column)

    def _are_of_others(self, table: str, is_total: str, columns: Sequence[str]) -> bool:
        """Return whether lines have a word in `columns`, which lines that add up others lack."""
        if not columns:
            return False
        pairs = ", ".join(
            f"count(*) FILTER ({is_total} AND regexp_matches({it}, '^\\s*\\pL')), "
            f"count(DISTINCT nullif({it}, ''))"
            for it in columns
        )
        row = self._connection.execute(f"SELECT {pairs} FROM {table}").fetchall()[0]
        return any(filled and kinds > 1 for filled, kinds in zip(row[::2], row[1::2], strict=True))

    def describe(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the labels of the lines that add up others, by columns, and note them."""
        labels: dict[str, Sequence[str]] = {}
        for name in names:
            if found := self._found.get(quote_name(name)):
                labels[name] = sorted(found)
                self._notes.append(
                    f"Lines with {_join_words(labels[name])} in {name!r}: {found.total():,}. "
                    "Leave them out of sums."
                )
        return labels

    def _count(self, table: str, text: str, condition: str) -> Counter[str]:
        """Return how many lines that fulfil a condition have each label."""
        rows: list[tuple[str, int]] = self._connection.execute(
            f"SELECT trim({text}, ' :'), count(*) FROM {table} WHERE {condition} "
            "GROUP BY 1 ORDER BY 1"
        ).fetchall()
        return Counter(dict(rows))

    def find_sums(self, table: str, types: Mapping[str, str]) -> None:
        """Find lines that add up others by their numbers, and note those that may.

        `types` are the types of the columns of the table by their names.
        """
        types = {name: type.partition("(")[0] for name, type in types.items()}
        numbers = [f"{quote_name(name)}::DOUBLE" for name, it in types.items() if it in _NUMBERS]
        self._find_similar(table, [*map(quote_name, types)][:_LABELS], numbers)
        if not numbers or len(types) < 2:
            return
        kinds = (*_NUMBERS, "TIME")
        names = [name for name, type in types.items() if type not in kinds] or [*types][:1]
        if self._find_bare(table, names, numbers) or any(self._found.values()):
            return
        if not any(self._find_bare(table, [it], numbers, 100) for it in names[:_LABELS]):
            self._compare_edges(table, numbers)

    def _find_similar(self, table: str, columns: Sequence[str], numbers: Sequence[str]) -> None:
        """Find lines of which a first value is as labels of sums are, such as `North total`."""
        texts = [f"{column}::VARCHAR" for column in columns]
        tests = _list_tests(texts)
        pairs = [*zip(texts, tests, strict=True)]
        label = f"CASE {' '.join(f'WHEN {test} THEN {text}' for text, test in pairs)} END"
        others = self._count(table, label, " OR ".join(tests))
        for word in {word for found in self._found.values() for word in found}:
            del others[word]
        if 0 < others.total() <= _LINES:
            lines, _ = self._read_lines(table, f"trim({label}, ' :')", numbers)
            doubtful = others.keys() & _list_doubtful(lines, _LEAST)
            if doubtful < others.keys():  # of a table with others, small ones are sums, too
                doubtful = others.keys() & _list_doubtful(lines, 0)
            sure = others.keys() - doubtful
            for column, (text, test) in zip(columns, pairs, strict=True):
                counts = self._count(table, text, test)
                self._found[column] += Counter({it: counts[it] for it in sure})
            others = Counter({it: count for it, count in others.items() if it in doubtful})
        self._compare_sums(table, numbers)
        if others := others | self._others:
            some = _join_words([*others][:_LABELS])
            self._notes.append(f"Lines may add up others, such as {some}: {others.total():,}.")

    def _compare_sums(self, table: str, numbers: Sequence[str]) -> None:
        """Note that other lines are totals, too, if together they are several times the last line.

        So it is in pivot tables, whose groups stand above their parts.
        """
        words = {
            name: [it for it in found if it.lower() not in _FIRST_LABELS]
            for name, found in self._found.items()
        }
        labels = [match_labels(name, found) for name, found in words.items() if found]
        if not (labels and numbers):
            return
        is_total = f"({' OR '.join(labels)})"
        sums = ", ".join(
            f"sum({it}) FILTER (NOT {is_total}), arg_max({it}, rowid) FILTER ({is_total})"
            for it in numbers
        )
        is_last, *row = self._connection.execute(
            f"SELECT max(rowid) FILTER ({is_total}) = max(rowid), {sums} FROM {table}"
        ).fetchall()[0]
        pairs = [(a, b) for a, b in zip(row[::2], row[1::2], strict=True) if a and b]
        times = {round(a / b) for a, b in pairs if isclose(a, b * round(a / b), rel_tol=1e-9)}
        if is_last and len(times) == 1 and min(times) > 1:
            self._notes.append(
                f"The lines without totals add up to {times.pop()} times the last line: some of "
                "them are totals, too."
            )

    def _compare_edges(self, table: str, numbers: Sequence[str]) -> None:
        """Note a first or last line that adds up all others, whatever its label is."""
        for edge, place in (("arg_min", "first"), ("arg_max", "last")):
            cells = ", ".join(f"{edge}({it}, rowid), sum({it}), count({it})" for it in numbers)
            row = self._connection.execute(f"SELECT {cells} FROM {table}").fetchall()[0]
            found = [
                cell
                for cell, added, count in zip(row[::3], row[1::3], row[2::3], strict=True)
                if cell and count > _LABELS and isclose(2 * cell, added, rel_tol=1e-9)
            ]
            if any(abs(cell) > _LEAST for cell in found):
                self._notes.append(f"The {place} line may be a total, as it adds up the others.")

    def _find_bare(
        self, table: str, names: Sequence[str], numbers: Sequence[str], most: int = 0
    ) -> bool:
        """Say if each line without some labels has sums of the lines above it, or of its block.

        There may be at most as many other lines for each of them, if it is not 0.
        """
        is_bare = " AND ".join(f"{quote_name(name)} IS NULL" for name in names)
        count, rows = self._connection.execute(
            f"SELECT count(*) FILTER ({is_bare}), count(*) FROM {table}"
        ).fetchall()[0]
        if not 0 < count <= min(rows // 2, _LINES) or (most and rows > most * count):
            return False
        lines, rest = self._read_lines(table, f"CASE WHEN {is_bare} THEN '' END", numbers)
        if any(number for _, number in rest):
            return False  # numbers follow that the last total lacks
        if not all(any(_adds_up(it.cells, sums) for sums in (it.block, it.above)) for it in lines):
            return False
        self._notes.append(
            f"Lines without {names[0]!r} may be totals, as their numbers add up those above: "
            f"{count:,}."
        )
        return True

    def _read_lines(
        self, table: str, label: str, numbers: Sequence[str]
    ) -> "tuple[Sequence[_Line], _Sums]":
        """Return the lines for which the SQL `label` is not NULL, and the sums below them all."""
        values = "".join(f", {name} AS v{at}" for at, name in enumerate(numbers))
        sums = "".join(
            f", max(v{at}) FILTER (label IS NOT NULL), "
            f"coalesce(sum(v{at}) FILTER (label IS NULL), 0), "
            f"count(nullif(v{at}, 0)) FILTER (label IS NULL)"
            for at in range(len(numbers))
        )
        rows: list[tuple[Any, ...]] = self._connection.execute(
            f"SELECT max(label){sums} FROM (SELECT *, count(label) OVER (ROWS UNBOUNDED PRECEDING) "
            f"AS block FROM (SELECT {label} AS label{values} FROM {table})) "
            "GROUP BY block ORDER BY block"
        ).fetchall()
        lines: list[_Line] = []
        block = above = [(0.0, 0)] * len(numbers)
        for word, *cells in rows:
            if word is not None:
                lines.append(_Line(word, cells[::3], block, above))
            block = [*zip(cells[1::3], cells[2::3], strict=True)]
            above = _add(above, block)
        return lines, block


_Sums = Sequence[tuple[float, int]]
"""The sum of each column of numbers, and how many numbers other than 0 are in it."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that may add up others."""

    label: str
    cells: Sequence[float | None]
    block: _Sums
    """Of the lines between the line before of this kind and this one."""
    above: _Sums
    """Of all lines above it."""


def find_totals(
    connection: duckdb.DuckDBPyConnection, table: str
) -> tuple[Sequence[str], Mapping[str, Sequence[str]]]:
    """Return notes about the lines of a typed table that add up others.

    The second value are the labels of totals, by columns. `table` is its quoted name.
    """
    notes: list[str] = []
    totals = Totals(connection, notes)
    rows = connection.execute(f"DESCRIBE {table}").fetchall()
    types = {str(row[0]): str(row[1]) for row in rows}
    texts = [name for name, type in types.items() if type == "VARCHAR"]
    totals.find(table, [*map(quote_name, texts)])
    totals.find_sums(table, types)
    return notes, totals.describe(texts)


def is_sum(columns: Sequence[str]) -> str:
    """Return the SQL condition that one of the first values of a line is as labels of sums are."""
    return f"({' OR '.join(_list_tests(columns[:_LABELS]))})"


def _list_tests(columns: Sequence[str]) -> Sequence[str]:
    """Return the SQL conditions that the values of a line are as labels of sums are."""
    pattern, first = quote_text(_SUM_PATTERN), quote_text(_FIRST_PATTERN)
    words = [f"trim({it}, ' :')" for it in columns]
    return [
        f"({_begins_with_letter(column)} AND (regexp_matches({word}, {pattern}) "
        f"OR {_are_empty(columns[:at])} AND regexp_matches({word}, {first})))"
        for at, (column, word) in enumerate(zip(columns, words, strict=True))
    ]


def _begins_with_letter(column: str) -> str:
    """Return the SQL condition that a value may be a label: most others are found out by it."""
    return f"({column} < '0' OR {column} >= ':')"


def _are_empty(columns: Sequence[str]) -> str:
    return " AND ".join([f"coalesce({it}, '') = ''" for it in columns] or ["true"])


def _list_doubtful(lines: Sequence[_Line], least: float) -> AbstractSet[str]:
    """Return the labels of lines that do not add up blocks before them, or by coincidence.

    It is hardly one for numbers above `least`.
    """
    doubtful: set[str] = set()
    for at, line in enumerate(lines):
        last = reversed(lines[max(0, at - _BLOCKS) : at + 1])
        for sums in (line.above, *accumulate((it.block for it in last), _add)):
            found = [it for it in _match(line.cells, sums) if it[0] and it[1] > 1]
            is_whole = len(found) == len(line.cells) - line.cells.count(None)
            if any(abs(it[0]) > least for it in found) or (is_whole and len(found) > 1):
                break
        else:
            doubtful.add(line.label)
    return doubtful


def _adds_up(line: Sequence[float | None], sums: _Sums) -> bool:
    """Return whether all numbers of a line are sums, or one is by more than coincidence."""
    found = _match(line, sums)
    is_sum = any(cell and count > 1 for cell, count in found)
    return is_sum and (
        len(found) == len(line) - line.count(None)
        or any(cell and (count > 2 or cell > _LEAST) for cell, count in found)
    )


def _match(line: Sequence[float | None], sums: _Sums) -> Sequence[tuple[float, int]]:
    """Return the numbers of a line that are sums, and how many numbers they add up."""
    return [
        (cell, count)
        for cell, (added, count) in zip(line, sums, strict=True)
        if cell is not None and isclose(cell, added, rel_tol=1e-9, abs_tol=1e-6)
    ]


def _add(sums: _Sums, others: _Sums) -> _Sums:
    return [(a + c, b + d) for (a, b), (c, d) in zip(sums, others, strict=True)]


def _join_words(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
