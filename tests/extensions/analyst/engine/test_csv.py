"""A CSV file becomes a table without a lost value, and doubtful choices are in its description."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.base.encodings import BLOCK
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Rows = Sequence[Sequence[Any]]
Tabular = tuple[Sequence[str], Rows, str]
_LONG = "id,name\n" + "".join(f"{n},n\n" for n in range(3_000))


async def read(
    options: EngineOptions, location: Path, **told: Any
) -> tuple[Sequence[str], Rows, str]:
    """Return the names of the columns of a source, its rows, and its description."""
    engine = Engine(options, [parse_source({"location": str(location), "name": "t", **told})])
    await engine.open()
    async with aclosing(engine):
        (dataset,) = engine.datasets.values()
        table = await engine.run("FROM t", limit=100_000)
        return [column.name for column in dataset.columns], table.rows, dataset.description


async def read_each(
    options: EngineOptions, folder: Path, texts: Iterable[str]
) -> Mapping[str, Sequence[Tabular]]:
    """Return the tables of each text: names of columns, rows, and description."""
    files = {folder / f"t{number}.csv": text for number, text in enumerate(texts)}
    for path, text in files.items():
        path.write_text(text, newline="")
    engine = Engine(options, [parse_source(str(path)) for path in files])
    await engine.open()
    async with aclosing(engine):
        tables: dict[str, list[Tabular]] = {text: [] for text in files.values()}
        for it in engine.datasets.values():
            rows = (await engine.run(f"FROM {it.name}", limit=100)).rows
            names = [column.name for column in it.columns]
            tables[files[folder / f"{it.source}.csv"]].append((names, [*rows], it.description))
        return tables


TABLES: Mapping[str, tuple[Sequence[str], Rows]] = {
    "country,2010,2011\nNorway,5,6\n": (["country", "2010", "2011"], [("Norway", 5, 6)]),
    "2010,5\n2011,6\n": (["column0", "column1"], [(2010, 5), (2011, 6)]),
    "year,2026-01,2026-02\n2010,5,6\n": (["year", "2026-01", "2026-02"], [(2010, 5, 6)]),
    "name,city,\nAnn,Oslo,\n": (["name", "city"], [("Ann", "Oslo")]),
    "id,,\n1,2,3\n4,5,6\n": (["id", "column1", "column2"], [(1, 2, 3), (4, 5, 6)]),
    "Jan 3 12:00 up\nJan 3 12:05 down\n": (
        ["column0"],
        [("Jan 3 12:00 up",), ("Jan 3 12:05 down",)],
    ),
    "name,\nAnn,1\nBob,2\n": (["name", "column1"], [("Ann", 1), ("Bob", 2)]),
    "Sales of May\n\na;b\n1;2,5\n": (["a", "b"], [(1, 2.5)]),
    ",2025,,2026,\nr,a,b,a,b\nN,1,2,3,4\n": (
        ["r", "2025 a", "2025 b", "2026 a", "2026 b"],
        [("N", 1, 2, 3, 4)],
    ),
    "Sales,,\na,b,c\n1,2,3\n": (["a", "b", "c"], [(1, 2, 3)]),
    "sep=;\na;b\n1;2\n": (["a", "b"], [(1, 2)]),
    "a,A,a\n1,2,3\n": (["a", "A_1", "a_2"], [(1, 2, 3)]),
    "x,y\nr1,1,2\nr2,3,4\n": (["column0", "x", "y"], [("r1", 1, 2), ("r2", 3, 4)]),
    "remark\ngood\nslow;but fine\n": (["remark"], [("good",), ("slow;but fine",)]),
    'a,b\n"x\ny",1\n"""q""",2\n': (["a", "b"], [("x\ny", 1), ('"q"', 2)]),
    'a,b\n"x \\"q\\" y",1\n': (["a", "b"], [('x "q" y', 1)]),
    "a\r1\r2\r": (["a"], [(1,), (2,)]),
    "zip,id\n01234,12345678901234567890\n": (["zip", "id"], [("01234", "12345678901234567890")]),
    "version,part\n1.2.11,12-05-08\n": (["version", "part"], [("1.2.11", "12-05-08")]),
    'a,b\n"1,234.50",1\n900,2\n': (["a", "b"], [(1234.5, 1), (900.0, 2)]),
    'a\n"1,23,456"\n"12,34,567.50"\n': (["a"], [(123456.0,), (1234567.5,)]),
    "a;b\n1.234;1.234,50\n2.500;9,10\n": (["a", "b"], [(1234.0, 1234.5), (2500.0, 9.1)]),
    "a;b\n1 234,5;1'234.5\n": (["a", "b"], [(1234.5, 1234.5)]),
    "d\n2026-01-05\n2026-01-05 12:30\n": (
        ["d"],
        [(datetime(2026, 1, 5),), (datetime(2026, 1, 5, 12, 30),)],
    ),
    "08:30,a\n09:00,b\n": (["column0", "column1"], [(time(8, 30), "a"), (time(9), "b")]),
    "05 Jan 2026\n": (["column0"], [(date(2026, 1, 5),)]),
    "price\n2,50\n13,75\n": (["price"], [(2.5,), (13.75,)]),
    "price\n1,234.50\n-382,843.85\n": (["price"], [(1234.5,), (-382843.85,)]),
    "a\tb\tc\n1,000.5\t2\t3\n2,000.5\t3\n": (
        ["a", "b", "c"],
        [(1000.5, 2, 3), (2000.5, 3, None)],
    ),
    "remark\ngood, but slow\nbad\nlate, too\n": (
        ["remark"],
        [("good, but slow",), ("bad",), ("late, too",)],
    ),
    "By;Ann\nDay;2026-01-05\n\na;b;c;d\n1;2;3;4\n5;6;7;8\n": (
        ["a", "b", "c", "d"],
        [(1, 2, 3, 4), (5, 6, 7, 8)],
    ),
    "a,b\r1,2\r\n3,4\n": (["a", "b"], [(1, 2), (3, 4)]),
    "d,e\n05.01.26,13/1/2026\n": (["d", "e"], [(date(2026, 1, 5), date(2026, 1, 13))]),
    "Statement\nAnn Lee\n01.05.2026\n\nday;text;n\n13.05.2026;rent;-5,5\n14.05.2026;pay;7,5\n": (
        ["day", "text", "n"],
        [(date(2026, 5, 13), "rent", -5.5), (date(2026, 5, 14), "pay", 7.5)],
    ),
    "Sales, May\nOslo, Bergen\n\nname;n\nx;1,5\ny;2,5\nSource: Bank, Oslo\n": (
        ["name", "n"],
        [("x", 1.5), ("y", 2.5)],
    ),
    '"Sales; May, 2026"\n\na;b\n1,5;2,7\n2,5;3,7\n': (["a", "b"], [(1.5, 2.7), (2.5, 3.7)]),
    "By; May; Oslo\nOf; 3.6.\n\na;b\n1,5;2,7\n2,5;3,7\n": (
        ["a", "b"],
        [(1.5, 2.7), (2.5, 3.7)],
    ),
    "Sales, May\n\na|b\n1,5|2,7\n": (["a", "b"], [(1.5, 2.7)]),
    "Prices, May\nprice\n2,50\n13,75\n": (["price"], [(2.5,), (13.75,)]),
    "remark\ngood, but slow\nlate, too\n": (["remark"], [("good, but slow",), ("late, too",)]),
    "EXTF;700;21;Postings;12\nsum;account;day\n1234,5;1200;0501\n99,0;1200;0601\n": (
        ["sum", "account", "day"],
        [(1234.5, 1200, "0501"), (99.0, 1200, "0601")],
    ),
    "By\tR2\nMode\tELISA\n\nWell\tOD\tConc\n\tAU\tng\nA1\t0.5\t1\nA2\tOVER\t2\nA3\t1\t3\n": (
        ["Well", "OD AU", "Conc ng"],
        [("A1", "0.5", 1), ("A2", "OVER", 2), ("A3", "1", 3)],
    ),
    "d,n,m\n2026\u5e741\u67085\u65e5,\uff11\uff12,5\n2026\u5e741\u67086\u65e5,3,6\n": (
        ["d", "n", "m"],
        [(date(2026, 1, 5), 12, 5), (date(2026, 1, 6), 3, 6)],
    ),
    "v;when\n1,5E+03;05/Jan/26 3:04 PM\n": (
        ["v", "when"],
        [(1500.0, datetime(2026, 1, 5, 15, 4))],
    ),
    "city,n\nOslo,1\n\ufeffcity,n\nRome,2\n": (["city", "n"], [("Oslo", 1), ("Rome", 2)]),
    "Konto:;DE89;\nZeitraum:;01.01.2026 - 31.01.2026;\nAnfangssaldo;1.000,00;EUR\n\n"
    "Tag;Wert;Zweck;Soll;Haben;W\u00e4hrung\n25.01.2026;25.01.2026;Miete;850,00;;EUR\n"
    "26.01.2026;27.01.2026;Lohn;;2.850,00;EUR\n27.01.2026;27.01.2026;Strom;60,00;;EUR\n": (
        ["Tag", "Wert", "Zweck", "Soll", "Haben", "W\u00e4hrung"],
        [
            (date(2026, 1, 25), date(2026, 1, 25), "Miete", 850, None, "EUR"),
            (date(2026, 1, 26), date(2026, 1, 27), "Lohn", None, 2850, "EUR"),
            (date(2026, 1, 27), date(2026, 1, 27), "Strom", 60, None, "EUR"),
        ],
    ),
    "city,n\nOslo,1\n\u3003,2\n\u3003,3\nRome,4\n": (
        ["city", "n"],
        [("Oslo", 1), ("Oslo", 2), ("Oslo", 3), ("Rome", 4)],
    ),
    """a,b\n1,cm\n2,\"\"\"\"\n3,''\n4,idem\n5,"=""07"\"\"\n6,"=\"\""\n7,\u3003\n""": (
        ["a", "b"],
        [(1, "cm"), (2, '"'), (3, "''"), (4, "idem"), (5, "07"), (6, '="'), (7, '="')],
    ),
}


async def test_a_file_has_the_columns_and_values_that_a_person_reads(
    tmp_path: Path, options: EngineOptions
) -> None:
    found = await read_each(options, tmp_path, TABLES)
    assert {text: [it[:2] for it in tables] for text, tables in found.items()} == {
        text: [table] for text, table in TABLES.items()
    }


_SIGNS = (
    "its numbers have signs or units, such as $, % or parentheses; with one unit, DOUBLE in the "
    "`columns` of the source makes them numbers"
)
DOUBTS: Mapping[str, tuple[Rows, str]] = {
    "a,b\n1,2\n3,4,5\n6\n": (
        [(1, 2, None), (3, 4, 5), (6, None, None)],
        "1 line has fewer values than the header; the last are empty. "
        '1 line has more values than the header, from "column2" on.',
    ),
    'a,b\n1,x\n2,"y\n3,z\n': (
        [(1, "x"), (3, "z")],
        "1 line is malformed and left out: 3.",
    ),
    '1,x\n2,"y\n3,z\n': (
        [(1, "x"), (3, "z")],
        "The file has no header: its columns have numbers. 1 line is malformed and left out: 2.",
    ),
    "d,n\n01/03/2026,1\n": (
        [("01/03/2026", 1)],
        "'d' is a text: its dates may begin with the day or the month; `dates: day-first` in the "
        "settings of the source says which.",
    ),
    "d,n\n26/01/05,1\n26/02/11,2\n": (
        [("26/01/05", 1), ("26/02/11", 2)],
        "'d' is a text: its dates may begin with the day or the year; `dates: day-first` in the "
        "settings of the source says which.",
    ),
    "d,e\n01/03/2026,13/01/2026\n": (
        [(date(2026, 3, 1), date(2026, 1, 13))],
        "'d' is read day-first, as other dates of the data set.",
    ),
    "a;b\n1,234;x\n": (
        [("1,234", "x")],
        "'a' is a text: its commas may be those of thousands or of fractions; `columns` in the "
        "settings of the source says which: BIGINT or DOUBLE.",
    ),
    "a;b\n1.234;x\n2.500;y\n": (
        [("1.234", "x"), ("2.500", "y")],
        "'a' is a text: its points may be those of thousands or of fractions; `columns` in the "
        "settings of the source says which: BIGINT or DOUBLE.",
    ),
    "m;n;p;k\nx;1.234 \u20ac;5 %;CHF -7\ny;-500,25 \u20ac;2,5 %;CHF 8\n": (
        [("x", 1234.0, 5.0, -7), ("y", -500.25, 2.5, 8)],
        "'n' is in '\u20ac'. 'p' is in '%'. 'k' is in 'CHF'.",
    ),
    "m,n,p\nx,5 \u20ac,ISO 9001\ny,6 $,ISO 9002\n": (
        [("x", "5 \u20ac", "ISO 9001"), ("y", "6 $", "ISO 9002")],
        f"'n' is a text: {_SIGNS}. 'p' is a text: {_SIGNS}.",
    ),
    "t,n\n2026-01-03T10:00:00+02:00,x\n2026-01-03 10:00:00,y\n2026-01-04,z\n": (
        [("2026-01-03T10:00:00+02:00", "x"), ("2026-01-03 10:00:00", "y"), ("2026-01-04", "z")],
        "'t' is a text: 1 of its 3 values are not of the type TIMESTAMP.",
    ),
    "k,n\nx,1\n\n* estimated\nSource: census, 2026\n": (
        [("x", 1)],
        "Notes are left out: 2.",
    ),
    "k,n\na,10\nb,20\nAverage,15\n": (
        [("a", 10), ("b", 20), ("Average", 15)],
        "Lines with 'Average' in 'k': 1. Leave them out of sums.",
    ),
    "day;n\n13.01.2026;1,5\n14.01.2026;2\nSumme:;3,5\n": (
        [(date(2026, 1, 13), 1.5), (date(2026, 1, 14), 2.0)],
        "Lines with 'Summe' in 'day' are left out, as it is a DATE: 1.",
    ),
    "a,b\n1,x\nNA,y\n3,z\n": (
        [("1", "x"), ("NA", "y"), ("3", "z")],
        "'a' is a text: 1 of its 3 values are not of the type BIGINT.",
    ),
    "a,b\n1,$5.00\n2,($1.50)\n": (
        [(1, "$5.00"), (2, "($1.50)")],
        f"'b' is a text: {_SIGNS}.",
    ),
    "a,b\n1,2\na,b\n3,4\n": (
        [(1, 2), (3, 4)],
        "Lines that repeat the header are left out: 1.",
    ),
    "a;b\n1,234;5,678.5\n": (
        [(1234, 5678.5)],
        "'a' has commas, which are read as those of thousands.",
    ),
    "a,b\nx,2\nTotal:,2\n": (
        [("x", 2), ("Total:", 2)],
        "Lines with 'Total' in 'a': 1. Leave them out of sums.",
    ),
    "region,item,n\nNord,A,1\nNord,B,2\nNord,Total,3\nWest,average,4\n": (
        [("Nord", "A", 1), ("Nord", "B", 2), ("Nord", "Total", 3), ("West", "average", 4)],
        "Lines with 'Total' in 'item': 1. Leave them out of sums.",
    ),
    "a,b\n1,x\n,Subtotal\n,TOTAL\n": (
        [(1, "x"), (None, "Subtotal"), (None, "TOTAL")],
        "Lines with 'Subtotal', 'TOTAL' in 'b': 2. Leave them out of sums.",
    ),
    "Ann,idle\nBob,busy\nCid,idle\n": (
        [("Ann", "idle"), ("Bob", "busy"), ("Cid", "idle")],
        "The file has no header: its columns have numbers.",
    ),
    "city,n\nOslo,1\n\n* provisional\nSource: census\n": (
        [("Oslo", 1)],
        "Notes are left out: 2.",
    ),
    "comment,n\nThe soup was cold on Monday.,1\nThe soup was warm on Tuesday.,\n": (
        [("The soup was cold on Monday.", 1), ("The soup was warm on Tuesday.", None)],
        "",
    ),
    "question,n\nWhy?,1\n1) How?,\nWho,\n": (
        [("Why?", 1), ("1) How?", None), ("Who", None)],
        "",
    ),
    "city,weight,\n,kg,\nOslo,5,\n,,\nTotal 2026,5,\n": (
        [("Oslo", 5), ("Total 2026", 5)],
        "Two rows of names are joined. Empty lines are left out: 1. Lines may add up others, such "
        "as 'Total 2026': 1.",
    ),
    "# made by a till\ncity,n,m\nOslo,1,2\n# closed\nNorth,,\n": (
        [("Oslo", 1, 2), ("North", None, None)],
        "Lines above the header are left out. Notes are left out: 1. 1 line has a value in the "
        "first column alone.",
    ),
    '"net\nprice",n\n1,2\n': ([(1, 2)], ""),
    "city,n\nOslo,1\nPage 1 of 2,\ncity,n\nRome,2\n,Seite 2\n": (
        [("Oslo", 1), ("Rome", 2)],
        "Lines that repeat the header are left out: 1. Page numbers are left out: 2.",
    ),
    "Sales\ncity,n\nOslo,1\n\nPage 1\n\ncity,n\nRome,2\nBonn,3\n": (
        [("Oslo", 1), ("Rome", 2), ("Bonn", 3)],
        "Lines above the header are left out. Lines that repeat the header are left out: 1. "
        "Page numbers are left out: 1.",
    ),
    "city,n,m\nOslo,1,2\nRome,closed,unknown\nBonn,3,4\n": (
        [("Oslo", "1", "2"), ("Rome", "closed", "unknown"), ("Bonn", "3", "4")],
        "Line 3 may begin another table, and is read as a row of the one above: "
        "an empty line before it would separate them. 'n' is a text: 1 of its 3 values are not of "
        "the type BIGINT. 'm' is "
        "a text: 1 of its 3 values are not of the type BIGINT.",
    ),
    "name,n,name,n\na,1,b,2\n": (
        [("a", 1, "b", 2)],
        "The names of the columns are there twice, as those of two tables beside each other: the "
        "second ones have numbers.",
    ),
    'code,n\n="007",1\n="008",#REF!\n': (
        [("007", 1), ("008", None)],
        "Cells with an error, such as #N/A, are empty: 1.",
    ),
    "region,city,n\nNorth,Oslo,1\n,Rome,2\nSouth,Bonn,3\n,Wien ,4\n": (
        [("North", "Oslo", 1), (None, "Rome", 2), ("South", "Bonn", 3), (None, "Wien ", 4)],
        "'region' is empty in 2 of 4 lines: the value above may count for them, too. 'city' has 1 "
        "values with spaces around them.",
    ),
    "Stock list\n------------\n|item|n |\n------------\n|nut |10|\n|*   |10|\n------------\n": (
        [("nut", 10), ("*", 10)],
        "Lines above the header are left out. Lines of dashes are left out: 2. Lines may add up "
        "others, such as '*': 1.",
    ),
    "city,n\nOslo,1\nNorway total,1\nBalance,1\n": (
        [("Oslo", 1), ("Norway total", 1), ("Balance", 1)],
        "Lines may add up others, such as 'Balance', 'Norway total': 2.",
    ),
    "Name       Age  City\nAnn Lee     31  Oslo\n": (
        [("Ann Lee     31  Oslo",)],
        "Each line is one value: spaces between columns are no delimiter. Save it as CSV.",
    ),
    '"name,city,n"\n"Ann,Oslo,1"\n': (
        [("Ann,Oslo,1",)],
        "Each line is one value, in quotation marks as a whole. Save it anew as CSV.",
    ),
    "shop,item,n\nA,x,100\nA,y,20\nA total,,120\nB,x,1\nB,y,2\nSubtotal B,,3\nTotal,,123\n": (
        [
            *[("A", "x", 100), ("A", "y", 20), ("A total", None, 120)],
            *[("B", "x", 1), ("B", "y", 2), ("Subtotal B", None, 3), ("Total", None, 123)],
        ],
        "Lines with 'A total', 'Subtotal B', 'Total' in 'shop': 3. Leave them out of sums.",
    ),
    "Rows,n\nEast,30\nA,10\nB,20\nWest,70\nA,30\nB,40\nGrand Total,100\n": (
        [
            *[("East", 30), ("A", 10), ("B", 20), ("West", 70), ("A", 30), ("B", 40)],
            ("Grand Total", 100),
        ],
        "The lines without totals add up to 2 times the last line: some of them are totals, too. "
        "Lines with 'Grand Total' in 'Rows': 1. Leave them out of sums.",
    ),
    "id,name,n\n1,A,5\n2,\\N,\\N\n\ufeff3,C,7\n\n2 rows selected.\n": (
        [(1, "A", 5), (2, None, None), (3, "C", 7)],
        "Notes are left out: 1. Cells with \\N are empty: 2. 1 line has a value in the first "
        "column alone.",
    ),
    "id;unit;v\n1;unit;5\n2;unit;6\n": ([(1, "unit", 5), (2, "unit", 6)], ""),
    "id^v\n1^5\n2^6\n": ([(1, 5), (2, 6)], ""),
    "hash,ean\n1e5,4.93E+12\n2e7,5.01E+12\n": (
        [("1e5", 4.93e12), ("2e7", 5.01e12)],
        "'hash' is a text: its values may be codes, of which 1E5 is not 100000. 'ean' has numbers "
        "such as 4.93E+12, of which a spreadsheet has left digits out.",
    ),
    '"name","n","d"\n"Ann","12","x"\n"Bob","8","y"\n\n"A"\n"B"\n"C"\n"D"\n"E"\n': (
        [("Ann", 12, "x"), ("Bob", 8, "y"), *((it, None, None) for it in "ABCDE")],
        "5 lines have fewer values than the header; the last are empty. 5 lines have a value in "
        "the first column alone.",
    ),
    "region,item,n\nEast,A,10\nEast,B,20\nEast,,30\nWest,A,1\nWest,B,2\nWest,,3\n": (
        [
            *[("East", "A", 10), ("East", "B", 20), ("East", None, 30)],
            *[("West", "A", 1), ("West", "B", 2), ("West", None, 3)],
        ],
        "Lines without 'item' may be totals, as their numbers add up those above: 2.",
    ),
    "firm,n\nAll of us,180\nA,50\nB,60\nC,70\n": (
        [("All of us", 180), ("A", 50), ("B", 60), ("C", 70)],
        "The first line may be a total, as it adds up the others.",
    ),
    "points\n1,5\n2,6\n": (
        [(1.5,), (2.6,)],
        "Each line is one value: its commas are those of fractions.",
    ),
    'path,x\n"C:\\",a\n"D:\\dir\\",b\n': ([("C:\\", "a"), ("D:\\dir\\", "b")], ""),
    "ip;size;python\n192.168.100.101;101 102;3.10\n192.168.100.102;103 104;3.9\n": (
        [("192.168.100.101", 101102.0, 3.1), ("192.168.100.102", 103104.0, 3.9)],
        "'ip' is a text: its values may be addresses of the internet. 'size' has spaces, which are "
        "read as those of thousands. 'python' has numbers such as 1.10 beside 1.9, which would be "
        "others as versions.",
    ),
    "firm,n\nShell,1000\nBP,2000\nTotal Energies,3500\nEni,4000\n": (
        [("Shell", 1000), ("BP", 2000), ("Total Energies", 3500), ("Eni", 4000)],
        "Lines may add up others, such as 'Total Energies': 1.",
    ),
    "city,n\nOslo,1\nCarried forward,1\nRome,2\n": (
        [("Oslo", 1), ("Carried forward", 1), ("Rome", 2)],
        "Lines with 'Carried forward' in 'city': 1. Leave them out of sums.",
    ),
    "1,x\n": ([(1, "x")], "The file has no header: its columns have numbers."),
    "appVersion,price\n1.10,1.10\n1.2,2.50\n2.0,3.00\n": (
        [("1.10", 1.1), ("1.2", 2.5), ("2.0", 3.0)],
        "'appVersion' is a text: its values may be versions, of which 1.10 is not 1.1.",
    ),
    "clause,kg,rate\n7.1,1.9,0.5\n7.2,1.10,0.25\n7.10,2.50,0.10\n8,12.75,9\n": (
        [("7.1", 1.9, 0.5), ("7.2", 1.1, 0.25), ("7.10", 2.5, 0.1), ("8", 12.75, 9.0)],
        "'clause' is a text: its values may be versions, of which 1.10 is not 1.1.",
    ),
    "name,phone\nAnn,+4915112345678\nBob,+33 612 345 678\n": (
        [("Ann", "+4915112345678"), ("Bob", "+33 612 345 678")],
        "'phone' is a text: its values may be telephone numbers.",
    ),
    "d;n\n01.02.2026;1\n02.03.2026;2\n": (
        [(date(2026, 2, 1), 1), (date(2026, 3, 2), 2)],
        "'d' has dates with points, and is read day-first.",
    ),
    "d;n\n01.31.2026;1\n02.03.2026;2\n": (
        [(date(2026, 1, 31), 1), (date(2026, 2, 3), 2)],
        "'d' has dates with points, and is read month-first.",
    ),
    "k,x\na,5%\nb,0.07\nc,10%\n": (
        [("a", "5%"), ("b", "0.07"), ("c", "10%")],
        f"'x' is a text: {_SIGNS}.",
    ),
    "firm,city,n\nShell,Rome,1\nTotal,Oslo,2\nBP,Rome,3\n": (
        [("Shell", "Rome", 1), ("Total", "Oslo", 2), ("BP", "Rome", 3)],
        "Lines may add up others, such as 'Total': 1.",
    ),
    "claim,kind,n\n1,partial,10\n2,total,200\n3,partial,30\n4,total,500\n": (
        [(1, "partial", 10), (2, "total", 200), (3, "partial", 30), (4, "total", 500)],
        "Lines may add up others, such as 'total': 2.",
    ),
    "day,text,n\n2026-01-01,Opening balance,1\n2026-01-31,Closing balance,3\n": (
        [(date(2026, 1, 1), "Opening balance", 1), (date(2026, 1, 31), "Closing balance", 3)],
        "Lines may add up others, such as 'Closing balance', 'Opening balance': 2.",
    ),
    "page,n,share\n/,1234,45%\n/a,567,30%\n,1801,40%\n": (
        [("/", 1234, 45), ("/a", 567, 30), (None, 1801, 40)],
        "Lines without 'page' may be totals, as their numbers add up those above: 1. 'share' is "
        "in '%'.",
    ),
    "t\n2026-01-03 12:00:00.123456789\n": (
        [(datetime(2026, 1, 3, 12, 0, 0, 123456),)],
        "Times of 't' are cut to six decimals of a second.",
    ),
    "part,cells,share\n1E5,1e5,1.0E-5\n2E10,2e+06,1E-3\n31,7,0.5\n": (
        [("1E5", 1e5, 1e-5), ("2E10", 2e6, 1e-3), ("31", 7.0, 0.5)],
        "'part' is a text: its values may be codes, of which 1E5 is not 100000.",
    ),
    "city,n,price\nOslo,1,0.1\nRome,2,0.2\n,3,0.3\n": (
        [("Oslo", 1, 0.1), ("Rome", 2, 0.2), (None, 3, 0.3)],
        "Lines without 'city' may be totals, as their numbers add up those above: 1.",
    ),
    "city,n,share\nOslo,1,0.5\nRome,2,0.1\nParis,4,0.2\n,7,0.27\nProvisional,\n": (
        [
            *[("Oslo", 1, 0.5), ("Rome", 2, 0.1), ("Paris", 4, 0.2), (None, 7, 0.27)],
            ("Provisional", None, None),
        ],
        "1 line has fewer values than the header; the last are empty. 1 line has a value in the "
        "first column alone. "
        "Lines without 'city' may be totals, as their numbers add up those above: 1.",
    ),
    "city,n\nOslo,1\nBergen,2\n,3\nRome,4\nBari,5\n,9\n,12\n": (
        [("Oslo", 1), ("Bergen", 2), (None, 3), ("Rome", 4), ("Bari", 5), (None, 9), (None, 12)],
        "'city' is empty in 3 of 7 lines: the value above may count for them, too. "
        "Lines without 'city' may be totals, as their numbers add up those above: 3.",
    ),
    "city,n\nOslo,1\nRome,2\n,3\nBari,1\n": (
        [("Oslo", 1), ("Rome", 2), (None, 3), ("Bari", 1)],
        "",
    ),
    "city,n\nOslo,1\nRome,2\n,4\n,\n": (
        [("Oslo", 1), ("Rome", 2), (None, 4)],
        "Empty lines are left out: 1.",
    ),
}


async def test_a_doubtful_choice_is_in_the_description(
    tmp_path: Path, options: EngineOptions
) -> None:
    found = await read_each(options, tmp_path, DOUBTS)
    assert {text: [it[1:] for it in tables] for text, tables in found.items()} == {
        text: [doubts] for text, doubts in DOUBTS.items()
    }


SEVERAL: Mapping[str, Sequence[tuple[Sequence[str], Rows]]] = {
    "city,n,m\nOslo,1,2\n\nBy day\nday,rain,sun\nMon,3,4\n": [
        (["city", "n", "m"], [("Oslo", 1, 2)]),
        (["day", "rain", "sun"], [("Mon", 3, 4)]),
    ],
    "city,n,m\nOslo,1,2\nday,rain,sun\n2026-01-05,3,4\n2026-01-06,5,6\n": [
        (["city", "n", "m"], [("Oslo", 1, 2)]),
        (["day", "rain", "sun"], [(date(2026, 1, 5), 3, 4), (date(2026, 1, 6), 5, 6)]),
    ],
    "city,n,m\nOslo,1,2\nBy shop\nshop,staff\nNord,4\nWest,5\n": [
        (["city", "n", "m"], [("Oslo", 1, 2)]),
        (["shop", "staff"], [("Nord", 4), ("West", 5)]),
    ],
    "sep=;\nmonth;sold\nMay;1,5\nmonth;paid\nMay;2\nJune;3\n": [
        (["month", "sold"], [("May", 1.5)]),
        (["month", "paid"], [("May", 2), ("June", 3)]),
    ],
    "Sales\ncity,n\nOslo,1\nRome,2\n\nCosts\ncity,n,cur\nOslo,1,EUR\n": [
        (["city", "n"], [("Oslo", 1), ("Rome", 2)]),
        (["city", "n", "cur"], [("Oslo", 1, "EUR")]),
    ],
    "North\ncity,n\nOslo,1\n\nSouth\ncity,n\nRome,2\n": [
        (["city", "n"], [("Oslo", 1)]),
        (["city", "n"], [("Rome", 2)]),
    ],
}


async def test_each_table_of_a_file_is_a_data_set(tmp_path: Path, options: EngineOptions) -> None:
    found = await read_each(options, tmp_path, SEVERAL)
    assert {text: [it[:2] for it in tables] for text, tables in found.items()} == SEVERAL
    for _, (one, two) in found.items():
        assert "The file has 2 tables." in one[2]
        assert "It begins at line" in two[2]


async def test_an_empty_line_between_two_blocks_of_a_file_separates_tables(
    tmp_path: Path, options: EngineOptions
) -> None:
    rows = "x,1\n" * (BLOCK // 4 - 1)
    (tmp_path / "t.csv").write_text(f"a,b\n{rows}\nday,rain,sun\n2026-01-05,3,4\n")
    engine = Engine(options, [parse_source(str(tmp_path / "t.csv"))])
    await engine.open()
    async with aclosing(engine):
        assert [it.row_count for it in engine.datasets.values()] == [BLOCK // 4 - 1, 1]


async def test_a_file_of_too_many_tables_is_one_that_says_how_many(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "t.csv").write_text("a,b\nx,1\n\nc,d\ny,2\n\n" * 30)
    _, rows, description = await read(options, tmp_path / "t.csv")
    assert len(rows) == 3 * 30
    assert "The file has 60 tables, the second one from line 4 on." in description


async def test_a_first_line_without_an_end_is_said(tmp_path: Path, options: EngineOptions) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("a," * 200_000)
    _, rows, description = await read(options, tmp_path / "*.csv")
    assert [*rows] == [(1, 2)]
    assert "2.csv is left out: its first line has more than 262,144 characters." in description


ENCODINGS = {
    "utf-8-sig": "Zoë",
    "utf-16": "Zoë",
    "utf-16-le": "Zoe",
    "cp1252": "Zoë Müller",
    "cp1250": "Łukasz Dąbrowski",
    "cp1251": "Папа уходит",
    "shift-jis": "私が東京に住んで",
    "euc-jp": "私は東京に住んでいます",
    "big5": "王小明住在台北",
    "cp1253": "Γιώργος",
    "cp1254": "Ayşe Güneş İzmir",
    "cp1255": "שלום לכולם",
    "cp1256": "محمد أحمد",
    "cp874": "สมชาย ใจดี",
    "koi8-r": "Папа уходит",
}


async def test_a_file_of_another_encoding_has_its_letters_wherever_they_begin(
    tmp_path: Path, options: EngineOptions
) -> None:
    for number, (encoding, name) in enumerate(ENCODINGS.items()):
        (tmp_path / f"t{number}.csv").write_bytes(f"{_LONG}3000,{name}\n".encode(encoding))
    names = [f"t{number}" for number in range(len(ENCODINGS))]
    engine = Engine(options, [parse_source(str(tmp_path / f"{name}.csv")) for name in names])
    await engine.open()
    async with aclosing(engine):
        found = [(await engine.run(f"FROM {name} WHERE id = 3000", limit=2)).rows for name in names]
    assert [[*rows] for rows in found] == [[(3_000, name)] for name in ENCODINGS.values()]


async def test_a_file_with_a_broken_letter_loses_only_this_one(
    tmp_path: Path, options: EngineOptions
) -> None:
    text = "id,name\n1,Zoë Müller Größe\n2,?\n3,Łódź\n".encode()
    (tmp_path / "t.csv").write_bytes(text.replace(b"?", b"\xe9"))
    _, rows, description = await read(options, tmp_path / "t.csv")
    assert [*rows] == [(1, "Zoë Müller Größe"), (2, "\ufffd"), (3, "Łódź")]
    assert description == "t.csv is utf-8, but for 1 character in line 3."


MIXTURES: Mapping[str, Mapping[str, str]] = {
    "cp1252": {"utf-8": "Zoë Łukasz", "cp1252": "Jürgen € Köhler Spaß“"},
    "cp1251": {"utf-8": "Иван Москва", "cp1251": "Пётр Казань"},
    "cp932": {"utf-8": "表示", "cp932": "山田太郎は東京に住んでいます"},
}


@in_one_test("codec", MIXTURES)
async def test_a_file_with_lines_of_two_encodings_has_the_letters_of_both(
    tmp_path: Path, options: EngineOptions, codec: str
) -> None:
    names = MIXTURES[codec]
    lines = [b"id,name", *(f"1,{name}".encode(codec) for codec, name in names.items())]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    _, rows, description = await read(options, tmp_path / "t.csv")
    assert [*rows] == [(1, name) for name in names.values()]
    assert description == (
        f"t.csv is not UTF-8: it is read as {codec}, but for lines that are UTF-8."
    )


async def test_bytes_behind_the_last_line_are_no_row(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "t.csv").write_bytes(b"\0" * 64 + b"id,name\n1,A\n" + b"\0" * 500 + b"\x1a")
    names, rows, description = await read(options, tmp_path / "t.csv")
    assert (names, [*rows]) == (["id", "name"], [(1, "A")])
    assert description == "The last 501 bytes of t.csv are no text, and are left out."


async def test_all_files_of_a_data_set_decide_on_the_order_of_its_dates(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "1.csv").write_text("day,sold\n01/03/2026,1\n")
    (tmp_path / "2.csv").write_text("sold,day\n2,02/25/2026\n")
    names, rows, _ = await read(options, tmp_path / "*.csv")
    assert names == ["day", "sold"]
    assert sorted(map(tuple, rows)) == [(date(2026, 1, 3), 1), (date(2026, 2, 25), 2)]


TOLD: Mapping[str, tuple[Mapping[str, Any], Rows, str]] = {
    "d,code,n\n01/03/2026,7,1\n02/03/2026,8,x\n": (
        {"dates": "day-first", "columns": {"code": "varchar", "n": "bigint", "q": "date"}},
        [(date(2026, 3, 1), "7", 1), (date(2026, 3, 2), "8", None)],
        "The settings give a type to columns that are not here: q. Values of 'n' that are no "
        "BIGINT are empty: 1.",
    ),
    "d;n\n03.01.2026;1.234,50 \u20ac\n15.02.2026;89,90 \u20ac\nk.A.;n/a\n": (
        {"columns": {"d": "date", "n": "decimal(9,2)"}},
        [
            (date(2026, 1, 3), Decimal("1234.50")),
            (date(2026, 2, 15), Decimal("89.90")),
            (None,) * 2,
        ],
        "Values of 'd' that are no DATE are empty: 1. Values of 'n' that are no DECIMAL(9,2) are "
        "empty: 1. 'n' is in '\u20ac'.",
    ),
    "k;n;m;t\na;1.000;1,000;2026-03-29T02:30:00+01:00\nb;2.000;2,000;2026-03-29 02:30\n": (
        {"columns": {"n": "bigint", "m": "integer", "t": "timestamptz"}},
        [("a", 1000, 1000, datetime(2026, 3, 29, 1, 30, tzinfo=UTC)), ("b", 2000, 2000, None)],
        "'n' has points, which are read as those of thousands. 'm' has commas, which are read as "
        "those of thousands. Values of 't' that are no TIMESTAMPTZ are empty: 1.",
    ),
    "d;n;m\n03.01.2026;1.234;1,234\n04.01.2026;2.500;2,500\n": (
        {"dates": "day-first", "columns": {"d": "timestamp", "n": "bigint", "m": "double"}},
        [(datetime(2026, 1, 3), 1234, 1.234), (datetime(2026, 1, 4), 2500, 2.5)],
        "'m' has commas, which are read as those of fractions.",
    ),
    "t,n,d\n2026-01-03T10:00:00Z,1.5,13/01/2026\n2026-01-03 12:00:00+02:00,9007199254740993,x\n"
    "2026-01-03 10:00,2,02/03/2026\n": (
        {"dates": "month-first", "columns": {"t": "timestamp", "n": "bigint"}},
        [
            (datetime(2026, 1, 3, 10), None, "13/01/2026"),
            (datetime(2026, 1, 3, 10), 9007199254740993, "x"),
            (None, 2, "02/03/2026"),
        ],
        "Values of 't' that are no TIMESTAMP are empty: 1. 't' is in UTC. Values of 'n' that are "
        "no BIGINT are empty: 1. 'd' is a text: 1 of its 3 values are not of the type DATE.",
    ),
    "k;v;w;b;d\na;(100);12 kg;ja;20260103\nb;3,5-;-2,5 kg;nein;20260104\n": (
        {"columns": {"v": "double", "w": "double", "b": "boolean", "d": "date"}},
        [("a", -100, 12, True, date(2026, 1, 3)), ("b", -3.5, -2.5, False, date(2026, 1, 4))],
        "'w' is in 'kg'.",
    ),
    "d,n,id\n2026-01-03 10:00,1.0051,9007199254740993\n2026-01-04,2,1\n": (
        {"columns": {"d": "date", "n": "decimal(9,2)", "id": "double"}},
        [
            (date(2026, 1, 3), Decimal("1.01"), 9007199254740992),
            (date(2026, 1, 4), Decimal("2.00"), 1),
        ],
        "Values of 'd' that are shortened to a DATE: 1. Values of 'n' that are shortened to a "
        "DECIMAL(9,2): 1. Values of 'id' that are shortened to a DOUBLE: 1.",
    ),
    "d,n,m\n03/01/2026,1.5,x\n04/01/2026,2,y\n": (
        {"columns": {"d": "date", "n": "integer", "m": "double"}},
        [("03/01/2026", None, "x"), ("04/01/2026", 2, "y")],
        "'d' is a text: its dates may begin with the day or the month; `dates: day-first` in the "
        "settings of the source says which. Values of 'n' that are no INTEGER are empty: 1. 'm' is "
        "a text: none of its values is of the type DOUBLE.",
    ),
}


@pytest.mark.parametrize("text", TOLD)
async def test_an_operator_says_what_columns_and_dates_are(
    tmp_path: Path, options: EngineOptions, text: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    told, expected, doubts = TOLD[text]
    _, rows, description = await read(options, tmp_path / "t.csv", **told)
    assert ([*rows], description) == (expected, doubts)


async def test_a_thousand_of_one_file_is_no_fraction_of_another(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "de.csv").write_text("k;n\na;1.234,50\n")
    (tmp_path / "us.csv").write_text("k,n\nb,1.125\n")
    _, rows, description = await read(options, tmp_path / "*.csv")
    assert [*rows] == [("a", "1.234,50"), ("b", "1.125")]
    assert description == (
        "'n' is a text: its files may write thousands and fractions differently."
    )


async def test_a_doubtful_number_in_the_last_of_many_rows_is_told_as_in_the_first(
    tmp_path: Path, options: EngineOptions
) -> None:
    rows = "".join(f"{number};{number % 100}\n" for number in range(70_000))
    found = await read_each(options, tmp_path, [f"id;v\n{rows}0;1.234\n", f"id;v\n{rows}0;1E5\n"])
    notes = [description for ((_, _, description),) in found.values()]
    assert "points may be those of thousands or of fractions" in notes[0]
    assert "1E5 is not 100000" in notes[1]
