"""The lines of a table that add up others, by their labels or by their numbers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import isclose

import duckdb

from copilot_runtime.extensions.analyst.engine.csv.readings import TypedColumn
from copilot_runtime.extensions.analyst.engine.datasets import (
    match_labels,
    quote_name,
    quote_text,
    quote_texts,
)

_NUMBERS = ("BIGINT", "DOUBLE")

_LABELS = 3
"""Columns of which the first value may be the label of a line."""
_PLACES = 8
"""Columns in which `Total` is a label also behind other values, as in `North, Total, 12`."""
_TOTALS = (
    *("total", "totals", "grand total", "subtotal", "sub-total", "sum", "total general"),
    *("sous-total", "sous total", "subtotale", "subtotaal", "summa", "celkem", "összesen", "i alt"),
    *("\u03c3", "\u2211", "toplam", "soma", "yhteensä"),
    *("summe", "gesamt", "gesamtsumme", "zwischensumme", "somme", "total général", "suma"),
    *("gesamtergebnis", "endsumme", "insgesamt", "eindtotaal", "общий итог", "genel toplam"),
    *("totale", "totaal", "razem", "всего", "итого", "合计", "总计", "合計", "小計", "합계"),
    *("carried forward", "brought forward", "carry forward", "balance forward", "übertrag"),
    *("saldovortrag", "à reporter", "solde reporté", "riporto", "suma y sigue", "繰越", "次頁繰越"),
)
"""Labels of lines that add up others."""
_AVERAGES = (
    *("average", "averages", "avg", "durchschnitt", "mittelwert", "moyenne", "promedio", "ø"),
    *("gemiddelde", "среднее", "平均", "平均値"),
)
"""Labels of lines that average others; behind the first value of a line, they may be a grade."""
_SUMS = (
    *("total", "subtotal", "sub-total", "grand total", "sum of", "summe", "zwischensumme"),
    *("gesamt", "итого", "合计", "总计", "合計", "小計", "kontostand", "saldo", "endsaldo"),
    *("anfangssaldo", "schlusssaldo", "solde", "balance", "opening balance", "closing balance"),
    *("saldo inicial", "saldo final", "残高"),
)
"""The beginnings of labels of lines that may add up others."""
_SUM_PATTERN = (
    rf"(?i)^({'|'.join(sorted({*_TOTALS, *_SUMS}))})(\W|$)|^\*+$"
    r"|\s(total|subtotal|gesamt|summe|insgesamt|ergebnis|totaal|razem|итого|всего)$|[计計]$"
)


class Totals:
    """Finds the lines that add up others, and says so in `notes`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, notes: list[str]) -> None:
        self._connection = connection
        self._notes = notes
        self._found: dict[str, Counter[str]] = defaultdict(Counter)
        """Column, quoted → label → number of lines with it."""

    def find(self, part: str, columns: Sequence[str]) -> None:
        """Find the lines of a part of the texts that say that they add up others."""
        totals, averages = quote_texts(_TOTALS), quote_texts(_AVERAGES)
        [(count,)] = self._connection.execute(f"SELECT count(*) FROM {part}").fetchall()
        labels: set[str] = set()
        for at, column in enumerate(columns[:_PLACES]):
            word = f"lower(trim({column}, ' :'))"
            condition = f"{word} IN ({totals})"
            if at < _LABELS:
                before = "".join(f" AND coalesce({it}, '') = ''" for it in columns[:at])
                condition += f" OR {word} IN ({averages}){before}"
            found = self._count(part, column, condition)
            if 0 < found.total() < count:
                self._found[column] += found
                labels |= {*found}
        label = write_label(columns)
        others = self._count(part, label, is_sum(columns))
        for word in labels:
            del others[word]
        if others:
            words = _join_words([*others][:_LABELS])
            self._notes.append(f"Lines may add up others, such as {words}: {others.total():,}.")

    def leave_out(self, texts: str, find_types: Callable[[str], Sequence[TypedColumn]]) -> None:
        """Leave out the lines whose labels stand in a column of dates or of numbers.

        It would be one of texts because of them. `find_types` returns the columns of a table.
        """
        if not self._found:
            return
        totals = {column: match_labels(column, found) for column, found in self._found.items()}
        others = f"(FROM {texts} WHERE NOT ({' OR '.join(totals.values())}))"
        types = {quote_name(one.name): one for one in find_types(others)}
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

    def describe(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the labels of the lines that add up others, by columns, and note them."""
        labels: dict[str, Sequence[str]] = {}
        for name in names:
            if found := self._found.get(quote_name(name)):
                labels[name] = [*found]
                self._notes.append(
                    f"Lines with {_join_words(found)} in {name!r}: {found.total():,}. "
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

    def find_bare(self, table: str, columns: Sequence[TypedColumn]) -> None:
        """Say if each line without a label has sums of the lines above it, or of its block."""
        numbers = [quote_name(one.name) for one in columns if one.type in _NUMBERS]
        labels = [one.name for one in columns if one.type not in _NUMBERS] or [columns[0].name]
        is_bare = " AND ".join(f"{quote_name(name)} IS NULL" for name in labels)
        count, rows = self._connection.execute(
            f"SELECT count(*) FILTER ({is_bare}), count(*) FROM {table}"
        ).fetchall()[0]
        if not numbers or len(columns) < 2 or not 0 < count <= min(rows // 2, 1000):
            return
        values = "".join(f", {name} AS v{at}" for at, name in enumerate(numbers))
        sums = ", ".join(
            f"max(v{at}) FILTER (is_bare), coalesce(sum(v{at}) FILTER (NOT is_bare), 0), "
            f"count(nullif(v{at}, 0)) FILTER (NOT is_bare)"
            for at in range(len(numbers))
        )
        blocks: list[tuple[float, ...]] = self._connection.execute(
            f"SELECT {sums} FROM (SELECT {is_bare} AS is_bare, count(*) FILTER ({is_bare}) "
            f"OVER (ROWS UNBOUNDED PRECEDING) AS block{values} FROM {table}) "
            "GROUP BY block ORDER BY block"
        ).fetchall()
        if len(blocks) == count or any(blocks[-1][2::3]):
            return  # the first line has no label, or numbers follow that the last total lacks
        above = [(0.0, 0.0)] * len(numbers)
        for block, line in pairwise(blocks):
            own = [*zip(block[1::3], block[2::3], strict=True)]
            above = [(a + c, b + d) for (a, b), (c, d) in zip(above, own, strict=True)]
            if not any(_adds_up(line[::3], it) for it in (own, above)):
                return
        self._notes.append(
            f"Lines without {labels[0]!r} may be totals, as their numbers add up those above: "
            f"{count:,}."
        )


def is_sum(columns: Sequence[str]) -> str:
    """Return the SQL condition that the first value of a line says that it adds up others."""
    return f"regexp_matches({write_label(columns)}, {quote_text(_SUM_PATTERN)})"


def write_label(names: Sequence[str]) -> str:
    """Return the SQL of the first value of a line, without the colon behind it."""
    texts = ", ".join(f"nullif(trim(CAST({name} AS VARCHAR)), '')" for name in names[:_LABELS])
    return f"trim(coalesce({texts}), ' :')"


def _adds_up(line: Sequence[float | None], sums: Sequence[tuple[float, float]]) -> bool:
    """Return whether all numbers of a line are sums, or one is a sum of more than two numbers."""
    pairs = [(cell, *it) for cell, it in zip(line, sums, strict=True) if cell is not None]
    found = [
        (cell, count)
        for cell, added, count in pairs
        if isclose(cell, added, rel_tol=1e-9, abs_tol=1e-6)
    ]
    is_sum = any(cell and count > 1 for cell, count in found)
    return is_sum and (len(found) == len(pairs) or any(cell and count > 2 for cell, count in found))


def _join_words(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
