"""The sheets of a workbook are tables, and what is not certain about them is said."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.comments import Comment
from openpyxl.utils.datetime import CALENDAR_MAC_1904

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Tables = Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]], str]]


async def read(options: EngineOptions, location: Path, **told: Any) -> Tables:
    """Return names of columns, rows and description of each table of a workbook."""
    engine = Engine(options, [parse_source({"location": str(location), **told})])
    await engine.open()
    async with aclosing(engine):
        return {
            name: (
                [column.name for column in dataset.columns],
                [*(await engine.run(f'FROM "{name}"', limit=100)).rows],
                dataset.description,
            )
            for name, dataset in engine.datasets.items()
        }


def make_workbook(*sheets: Sequence[Sequence[Any]], change: Callable[[Any], object] = id) -> bytes:
    """Return a workbook with the rows of each sheet, changed before it is saved."""
    book: Any = openpyxl.Workbook()
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet() if number else book.active
        for row, values in enumerate(rows, 1):
            for column, value in enumerate(values, 1):
                cell = sheet.cell(row, column, value)
                if value == "#N/A":
                    cell.data_type = "e"
    change(book)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def merge(*ranges: str) -> Callable[[Any], object]:
    return lambda book: [book.active.merge_cells(it) for it in ranges]


def hide(book: Any) -> None:
    book.active.row_dimensions[2].hidden = True
    book.active.column_dimensions["B"].hidden = True
    book.create_sheet("old").sheet_state = "hidden"


def pad_with_zeros(book: Any) -> None:
    for row in "234":
        book.active[f"A{row}"].number_format = "00000"


def comment(book: Any) -> None:
    for place in ("B2", "B3"):
        book.active[place].comment = Comment("Estimated.", "Ann")


def count_from_1904(book: Any) -> None:
    book.epoch = CALENDAR_MAC_1904


def show_percent(book: Any) -> None:
    book.active["B2"].number_format = "0%"


def show_signs(book: Any) -> None:
    for cell, format in {"B2": '0.0"%"', "B3": "0\\%", "C2": "yyyy-mm-dd", "C3": "d.m.yy"}.items():
        book.active[cell].number_format = format


def store_zeros(book: bytes) -> bytes:
    """Return a workbook whose formulas have the result 0, as programs write them."""
    whole, out = zipfile.ZipFile(io.BytesIO(book)), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, whole.read(name).replace(b"</f><v />", b"</f><v>0</v>"))
    return out.getvalue()


def set_units(book: Any) -> None:
    formats = ('0.0 "kg"', "0%", "[$\u20ac-407] #,##0", '#,##0,"k"', "0")
    for column, format in zip("BCDEF", formats, strict=True):
        for row in "34":
            book.active[f"{column}{row}"].number_format = format
    book.active["D4"].number_format = '"$"#,##0.00'
    book.active["F4"].number_format = '0" h"'


_DAY = datetime(2024, 1, 5)
_NO_HEADER = "The file has no header: its columns have numbers."
_MERGED = "Texts of merged cells stand in each row that they span, numbers in the first one."

BOOKS: Mapping[str, tuple[bytes, Tables]] = {
    "values": (
        make_workbook([["a", "b", "c", "d"], [1, date(2024, 1, 5), time(8, 30), True]]),
        {"t": (["a", "b", "c", "d"], [(1, date(2024, 1, 5), time(8, 30), True)], "")},
    ),
    "comments": (
        make_workbook([["a", "b"], ["x", 1], ["y", 2]], change=comment),
        {
            "t": (
                ["a", "b"],
                [("x", 1), ("y", 2)],
                "Comments on cells are not read: 2, the first is on B2.",
            )
        },
    ),
    "1904": (
        make_workbook([["a"], [_DAY], [_DAY.replace(hour=12)]], change=count_from_1904),
        {"t": (["a"], [(_DAY,), (_DAY.replace(hour=12),)], "")},
    ),
    "zeros": (
        make_workbook([["zip", "n"], [501, 1], [90210, 2], [7, 3]], change=pad_with_zeros),
        {"t": (["zip", "n"], [("00501", 1), ("90210", 2), ("00007", 3)], "")},
    ),
    "title, remark, error, formula": (
        make_workbook(
            [
                *(["Sales"], [], ["x", "n", "m"], ["a", 1, "#N/A"], ["b", "=A1", 2]),
                *([], ["Source: till"]),
            ]
        ),
        {
            "t": (
                ["x", "n", "m"],
                [("a", 1, None), ("b", None, 2)],
                "Rows with one text alone, such as titles and remarks, are left out: 2. "
                "Cells with an error, such as #N/A, are empty: 1, the first is C4. "
                "Formulas without a stored value are empty: 1, the first is B5. "
                "Save the file in a program that calculates them.",
            )
        },
    ),
    "percent": (
        make_workbook([["k", "p"], ["a", 0.5], ["b", "12,5 %"], ["c", "7%"]], change=show_percent),
        {
            "t": (
                ["k", "p"],
                [("a", 0.5), ("b", 0.125), ("c", 0.07)],
                "'p' is in percent: 0.25 is 25 %.",
            )
        },
    ),
    "a sign for percent, and a date of nothing": (
        make_workbook([["k", "p", "d"], ["a", 5, 0], ["b", 7, 45_000]], change=show_signs),
        {
            "t": (
                ["k", "p", "d"],
                [("a", 5, None), ("b", 7, date(2023, 3, 15))],
                "Cells with an error, such as #N/A, are empty: 1, the first is C2. 'p' is in '%'.",
            )
        },
    ),
    "formulas that were not calculated": (
        store_zeros(make_workbook([["k", "n"], ["a", 5], ["b", "=B2*2"]])),
        {
            "t": (
                ["k", "n"],
                [("a", 5), ("b", None)],
                "Formulas without a stored value are empty: 1, the first is B3. Save the file in a "
                "program that calculates them.",
            )
        },
    ),
    "units": (
        make_workbook(
            [["Title"], [*"abcdef"], ["x", 1.5, 0.25, 7, 5000, 8], ["y", 2, 0.5, 8, 6000, 9]],
            change=set_units,
        ),
        {
            "t": (
                [*"abcdef"],
                [("x", 1.5, 0.25, 7, 5000, 8), ("y", 2.0, 0.5, 8, 6000, 9)],
                "'b' is in 'kg'. 'c' is in percent: 0.25 is 25 %. 'd' has values in different "
                "units, not to be added up: $, \u20ac. 'f' is in 'h', by the format of some of its "
                "cells. Lines above the header are left out.",
            )
        },
    ),
    "notes below, and between": (
        make_workbook(
            [
                *(["x", "n"], ["a", 1], [], ["Continued"], [], ["b", 2]),
                *(["* provisional"], ["Figures are those of the last census."]),
            ]
        ),
        {
            "t": (
                ["x", "n"],
                [("a", 1), ("b", 2)],
                "Rows with one text alone, such as titles and remarks, are left out: 1. "
                "Notes are left out: 2.",
            )
        },
    ),
    "merged names": (
        make_workbook(
            [["x", "Q1", None, "Q2"], [None, "n", "m", "n"], ["a", 1, 2, 3]],
            change=merge("A1:A2", "B1:C1"),
        ),
        {
            "t": (
                ["x", "Q1 n", "Q1 m", "Q2 n"],
                [("a", 1, 2, 3)],
                f"{_MERGED} Two rows of names are joined.",
            )
        },
    ),
    "merged labels": (
        make_workbook(
            [["x", "y", "n"], ["a", "k", 1], [None, "l", None], ["b", "m", 3]],
            change=merge("A2:A3", "C2:C3"),
        ),
        {"t": (["x", "y", "n"], [("a", "k", 1), ("a", "l", None), ("b", "m", 3)], _MERGED)},
    ),
    "three tables": (
        make_workbook(
            [
                *(["x", "n", None, "y", "n"], ["a", 1, None, "c", 2], [None, None, None, "d", 3]),
                *([], ["day", "z"], [date(2024, 1, 5), 4]),
            ]
        ),
        {
            "t": (["x", "n"], [("a", 1)], "The sheet has 3 tables."),
            "t_2": (["y", "n"], [("c", 2), ("d", 3)], ""),
            "t_3": (["day", "z"], [(date(2024, 1, 5), 4)], ""),
        },
    ),
    "tables that touch": (
        make_workbook(
            [
                *(["x", "n", "m"], ["a", 1, 2], ["x", "n", "m"], ["b", 3, 4]),
                *(["By day"], ["day", "rain"], [date(2024, 1, 5), 4], [date(2024, 1, 6), 5]),
            ]
        ),
        {
            "t": (
                ["x", "n", "m"],
                [("a", 1, 2), ("b", 3, 4)],
                "The sheet has 2 tables. Lines that repeat the header are left out: 1.",
            ),
            "t_2": (
                ["day", "rain"],
                [(date(2024, 1, 5), 4), (date(2024, 1, 6), 5)],
                "Lines above the header are left out.",
            ),
        },
    ),
    "texts in place of numbers": (
        make_workbook([["x", "n", "m"], ["a", 1, 2], ["b", "closed", "unknown"], ["c", 3, 4]]),
        {
            "t": (
                ["x", "n", "m"],
                [("a", "1", "2"), ("b", "closed", "unknown"), ("c", "3", "4")],
                "Row 3 may begin another table, and is read as a row of the one above: "
                "an empty line before it would separate them. 'n' is a text: 1 of its 3 values are "
                "not of the type "
                "BIGINT. 'm' is a text: 1 of its 3 values are not of the type BIGINT.",
            )
        },
    ),
    "a table on two pages": (
        make_workbook(
            [["x", "n"], ["a", 1], ["Page 1 of 2"], [], ["x", "n"], ["b", 2], ["Page 2 of 2"]]
        ),
        {
            "t": (
                ["x", "n"],
                [("a", 1), ("b", 2)],
                "Lines that repeat the header are left out: 1. Page numbers are left out: 2.",
            )
        },
    ),
    "numbers of 17 digits": (
        make_workbook([["id", "n"], [12345678901234567, 1], [12345678901234568, 2.5e17]]),
        {
            "t": (
                ["id", "n"],
                [(12345678901234570, 1), (12345678901234570, 2.5e17)],
                "'id' has numbers of more than 15 digits, which the file has rounded.",
            )
        },
    ),
    "side by side": (
        make_workbook([["x", "n", "x", "n"], ["a", 1, "c", 2], ["b", 3]]),
        {
            "t": (["x", "n"], [("a", 1), ("b", 3)], "The sheet has 2 tables."),
            "t_2": (["x", "n"], [("c", 2)], ""),
        },
    ),
    "hidden": (
        make_workbook([["x", "y"], ["a", 1], ["b", 2]], change=hide),
        {
            "t": (
                ["x", "y"],
                [("a", 1), ("b", 2)],
                "The hidden sheet 'old' is left out. Hidden rows are read, too: 1. "
                "Hidden columns are read, too: 1.",
            )
        },
    ),
    "an empty sheet": (
        make_workbook([["x"], [1]], [], [["y"], [2]]),
        {
            "sheet": (["x"], [(1,)], "The sheet 'Sheet1' is empty."),
            "sheet2": (["y"], [(2,)], ""),
        },
    ),
    "far cells": (
        make_workbook([[1]], change=lambda book: book.active.cell(1_048_576, 16_384, 2)),
        {
            "t": (["column0"], [(1,)], f"The sheet has 2 tables. {_NO_HEADER}"),
            "t_2": (["column0"], [(2,)], _NO_HEADER),
        },
    ),
}


@in_one_test("book", BOOKS)
async def test_a_sheet_is_a_table_and_its_doubts_are_in_the_description(
    tmp_path: Path, options: EngineOptions, book: str
) -> None:
    data, expected = BOOKS[book]
    (tmp_path / "t.xlsx").write_bytes(data)
    assert await read(options, tmp_path / "t.xlsx") == expected


async def test_sheets_of_the_same_name_in_several_files_are_one_table(
    tmp_path: Path, options: EngineOptions
) -> None:
    for number in range(2):
        (tmp_path / f"{number}.xlsx").write_bytes(make_workbook([["n"], [number]]))
    tables = await read(options, tmp_path / "*.xlsx", name="days")
    assert tables == {"days": (["n"], [(0,), (1,)], "")}


async def test_the_operator_chooses_a_sheet_and_its_types(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "t.xlsx").write_bytes(make_workbook([["n"]], [["code"], [7]]))
    told = {"table": "Sheet1", "columns": {"code": "varchar"}}
    assert await read(options, tmp_path / "t.xlsx", **told) == {"t": (["code"], [("7",)], "")}


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def lengthen(data: bytes) -> bytes:
    return data.replace(b"text", b"x" * 32_768)


@in_one_test(
    ("damage", "reason"),
    [(cut, "The document is damaged"), (lengthen, "more than 32,767 characters")],
)
async def test_a_sheet_that_cannot_be_read_is_left_out_alone(
    tmp_path: Path, options: EngineOptions, damage: Callable[[bytes], bytes], reason: str
) -> None:
    whole = zipfile.ZipFile(io.BytesIO(make_workbook([["n"], [1]], [["m"], ["text"]])))
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as archive:
        for name in whole.namelist():
            data = whole.read(name)
            archive.writestr(name, damage(data) if "sheet2" in name else data)
    columns, rows, description = (await read(options, tmp_path / "t.xlsx"))["t"]
    assert (columns, rows) == (["n"], [(1,)])
    assert description.startswith("The sheet 'Sheet1' is left out.")
    assert reason in description


OTHERS = {
    "no workbook": (b"<table></table>", "damaged, or no workbook"),
    "cut off": (make_workbook([["n"]])[:2_000], "damaged, or no workbook"),
    "old": (b"\xd0\xcf\x11\xe0", "of an old format: save it as .xlsx"),
    "encrypted": (
        b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le"),
        "encrypted: save it without a password",
    ),
}


@in_one_test("file", OTHERS)
async def test_a_file_that_is_no_workbook_is_refused_with_the_way_out(
    tmp_path: Path, options: EngineOptions, file: str
) -> None:
    data, reason = OTHERS[file]
    (tmp_path / "t.xlsx").write_bytes(data)
    with pytest.raises(DatasetRefused, match=reason):
        await read(options, tmp_path / "t.xlsx")


@in_one_test("name", ["t.xls", "t.xlsb", "t.ods", "t.numbers"])
def test_a_workbook_of_another_program_is_named(name: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        parse_source(name)
    assert caught.value.hint == "Save it as .xlsx, or each of its sheets as .csv."
