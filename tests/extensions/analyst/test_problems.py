"""Data that is broken, or made to break: the rest is served, and nothing of it is shown."""

import io
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pytest
from typer.testing import CliRunner

from copilot_runtime.base.errors import ConfigurationFailed, NotFound
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from copilot_runtime.extensions.analyst.question import Question
from copilot_runtime.extensions.analyst.sql.rules import Scope, SqlRefused
from copilot_runtime.extensions.analyst.tools.call import call_tool
from tests.extensions.analyst.analysts import ORDERS, build_analyst
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ANN = Scope(user="ann")
EVERY: Mapping[str, Any] = {"row_filters": {"*": "owner = $user"}}


def build(folder: Path, *names: str, **settings: Any) -> Analyst:
    return build_analyst(folder, data=[str(folder / name) for name in names], **settings)


def list_names(analyst: Analyst, scope: Scope = ANN) -> list[str]:
    return [one.name for one in analyst.engine.list_datasets(scope)]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"location": "a.csv", "colums": {}}, "analyst.data, a.csv: No setting of a data source"),
        ("old.xls", "analyst.data, old.xls: The data source"),
        ("s3://key@host/a.csv", "analyst.data, s3:"),
    ],
)
def test_a_wrong_source_in_the_settings_is_named(
    tmp_path: Path, source: Any, sentence: str
) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        build_analyst(tmp_path, data=[source])
    assert caught.value.message.startswith(sentence)
    assert "key" not in caught.value.message


async def test_a_source_that_cannot_be_read_shows_no_row_and_no_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad.csv").write_bytes(
        b"\xff\xfei\0d\0\n\0B\0O\0B\0-\0S\0E\0C\0R\0E\0T\0\0\xd8\n\0"
    )
    analyst = build(tmp_path, "bad.csv")
    with pytest.raises(DatasetRefused) as caught:
        await analyst.open()
    public = caught.value.public
    assert public.startswith("The data source 'bad.csv' cannot be read")
    assert public.endswith("it is not UTF-8.")
    assert "SECRET" not in public
    assert str(tmp_path) not in public
    assert str(tmp_path / "bad.csv") in caplog.text
    await analyst.aclose()


async def test_a_source_that_cannot_be_read_leaves_the_others_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.analyst.upkeep._FIRST_WAIT", 0.0)
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"\xff\xfei\0d\0\0\xd8\n\0")
    analyst = build(tmp_path, "bad.csv", "none.csv", "orders.csv")
    await analyst.open()
    async with aclosing(analyst):
        assert list_names(analyst) == ["orders"]
        assert analyst.find_failing_checks() == ["data:bad", "data:none"]
        bad.write_text("id,owner\n1,ann\n")
        analyst.start()
        await analyst.upkeep.wait_for_retry()
        assert sorted(list_names(analyst)) == ["bad", "orders"]
        assert analyst.find_failing_checks() == ["data:none"]


def make_sheets(*sheets: Sequence[Sequence[Any]]) -> bytes:
    book: Any = openpyxl.Workbook()
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"Part {number}") if number else book.active
        for row in rows:
            sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


_TOUCHING: Sequence[Sequence[Any]] = [
    *(["id", "owner", "n"], [1, "ann", 5], [2, "ann", 6], ["owner", "id", "m"]),
    *(["bob", 2, 7], ["bob", 3, 8], ["bob", 4, 9]),
]
_OTHER: Sequence[Sequence[Any]] = [["owner", "k"], ["bob", 2]]


@in_one_test(
    "name, data, filtered, open, closed",
    [
        (
            "t.csv",
            b"id,owner,n\n1,ann,5\n\nid,owner,n,m\n2,bob,6,7\n",
            *("t", ["t"], ["t_2"]),
        ),
        ("t.xlsx", make_sheets(_TOUCHING), "t", ["t"], ["t_2"]),
        ("t.xlsx", make_sheets(_TOUCHING), "sheet", [], ["t", "t_2"]),
        ("t.xlsx", make_sheets(_TOUCHING, _OTHER), "sheet", ["part_1", "sheet"], ["sheet_2"]),
        ("t.xlsx", make_sheets(_TOUCHING, _OTHER), "t", [], ["part_1", "sheet", "sheet_2"]),
    ],
)
async def test_tables_of_a_file_or_sheet_are_closed_if_only_another_one_has_a_filter(
    tmp_path: Path, name: str, data: bytes, filtered: str, open: list[str], closed: list[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    analyst = build(tmp_path, name, row_filters={filtered: "owner = $user"})
    await analyst.open()
    async with aclosing(analyst):
        assert sorted(list_names(analyst)) == open
        assert sorted(analyst.engine.datasets) == sorted([*open, *closed])
        assert analyst.rules.list_open() == [it for it in open if it != filtered]


@in_one_test(
    "text",
    [
        '1,bob,"SECRET"x,5\n2,ann,5\n',
        "id,person,amount\n1,bob,5\n",
    ],
)
async def test_a_table_without_the_columns_of_the_filter_is_closed(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "rag.csv").write_text(text)
    analyst = build(tmp_path, "rag.csv", "orders.csv", **EVERY)
    await analyst.open()
    async with aclosing(analyst):
        assert list_names(analyst) == ["orders"]
        assert list_names(analyst, Scope(user="root", is_operator=True)) == ["orders"]
        assert analyst.find_failing_checks() == ["data:rag"]
        with pytest.raises(SqlRefused):
            analyst.guard_sql("SELECT * FROM rag", ANN)


async def test_an_operator_may_open_a_table_without_the_columns_of_the_filter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cities.csv").write_text("city,people\nOslo,7\n")
    filters = {"*": "owner = $user", "cities": "true"}
    analyst = build(tmp_path, "cities.csv", "orders.csv", row_filters=filters)
    with caplog.at_level(logging.WARNING):
        await analyst.open()
    async with aclosing(analyst):
        assert sorted(list_names(analyst)) == ["cities", "orders"]
        assert not analyst.find_failing_checks()


async def test_a_filter_column_that_changes_its_type_closes_the_table(tmp_path: Path) -> None:
    file = tmp_path / "staff.csv"
    file.write_text("name,level\nann,10\nbob,9\n")
    analyst = build(tmp_path, "staff.csv", row_filters={"staff": "level < 10"})
    await analyst.open()
    assert list_names(analyst) == ["staff"]
    file.write_text("name,level\nann,100\nbob,9\neve,x\n")
    assert await analyst.engine.refresh() == ["staff"]
    assert list_names(analyst) == []
    await analyst.aclose()
    analyst = build(tmp_path, "staff.csv", row_filters={"staff": "level < 10"})
    await analyst.open()
    assert list_names(analyst) == []
    (problem,) = analyst.upkeep.list_problems()
    assert "was BIGINT and is VARCHAR now" in problem.sentence
    await analyst.aclose()
    cast = {"staff": "TRY_CAST(level AS INTEGER) < 10"}
    analyst = build(tmp_path, "staff.csv", row_filters=cast)
    await analyst.open()
    assert list_names(analyst) == ["staff"]
    await analyst.aclose()


@in_one_test("mode", ["copy", "attach"])
async def test_a_view_of_a_database_reads_no_file(tmp_path: Path, mode: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET")
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE orders AS SELECT 1 AS id")
        connection.execute("CREATE VIEW good AS SELECT id + 1 AS id FROM orders")
        connection.execute(f"CREATE VIEW evil AS FROM read_text('{secret}')")
        connection.execute(f"CREATE MACRO m() AS (SELECT content FROM read_text('{secret}'))")
        connection.execute("CREATE VIEW worse AS SELECT m() AS content")
    source = parse_source({"location": str(file), "mode": mode})
    engine = Engine(EngineOptions(folder=tmp_path / "store", threads=1), [source])
    await engine.open()
    async with aclosing(engine):
        names = {"good", "orders"} if mode == "copy" else {"orders"}
        assert {*engine.datasets} == names


async def test_a_label_that_names_no_data_set_is_refused_with_those_there_are(
    tmp_path: Path,
) -> None:
    async with aclosing(build(tmp_path, "orders.csv")) as analyst:
        question = Question(message="", dataset_label="salaries")
        with pytest.raises(NotFound, match=r"'salaries'\. Available data sets: orders\."):
            await analyst.open_session(ANN, question=question)
        evaluation = Question(message="", dataset_label="evaluation")
        assert (await analyst.open_session(ANN, question=evaluation)).dataset == "orders"


METRICS = """\
metric_catalog:
  shop:
    amount: {table: orders, sql: SUM(amount), dimensions: [city]}
    revenue: {table: orders, sql: SUM(amount) * 2, dimensions: [city]}
"""


@in_one_test(
    ("metric", "aggregation", "first", "trust"),
    [
        ("amount", "avg", 70 / 3, "derived"),
        ("amount", "sum", 70.0, "verified"),
        ("amount", "", 70.0, "verified"),
        ("revenue", "", 140.0, "verified"),
        ("revenue", "avg", None, None),
        ("revenue", "sum", None, None),
    ],
)
async def test_a_metric_is_computed_as_it_is_defined_or_not_at_all(
    tmp_path: Path, metric: str, aggregation: str, first: float | None, trust: str | None
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "metric_catalog.yaml").write_text(METRICS)
    async with aclosing(build(tmp_path, "orders.csv")) as analyst:
        session = await analyst.open_session(ANN)
        arguments = {"group_by": "city", "metric": metric, "aggregation": aggregation}
        result = await call_tool(session, "analyze_data", arguments)
        if first is None:
            assert result.is_error
            return
        assert result.table is not None
        assert result.lineage is not None
        assert {row[0]: row[1] for row in result.table.rows}["Oslo"] == pytest.approx(first)
        assert result.lineage.trust == trust


def test_the_command_waits_for_data_and_fails_for_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(ORDERS)
    data = ["--data", str(tmp_path / "orders.csv")]
    found = CliRunner().invoke(cli, ["analyst", "datasets", *data])
    assert (found.exit_code, "orders" in found.stdout) == (0, True)
    missing = ["--data", str(tmp_path / "none.csv")]
    found = CliRunner().invoke(cli, ["analyst", "datasets", *data, *missing])
    assert (found.exit_code, "orders" in found.stdout) == (1, True)


async def test_a_folder_that_is_deleted_is_said_and_what_is_open_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    analyst = build(tmp_path, "orders.csv")
    await analyst.open()
    async with aclosing(analyst):
        shutil.rmtree(tmp_path / "store")
        for _ in range(2):
            with pytest.raises(DatasetRefused, match="data folder was deleted") as caught:
                await analyst.engine.save("mine", "SELECT 1 AS n", owner="ann")
            assert str(tmp_path) not in caught.value.public
        with pytest.raises(DatasetRefused):
            await analyst.engine.refresh()
        query = analyst.guard_sql("SELECT count(*) FROM orders", ANN)
        assert (await analyst.engine.run(query, limit=1)).rows == [(4,)]
        assert (list_names(analyst), analyst.find_failing_checks()) == (["orders"], ["data:store"])
        assert str(tmp_path / "store") in caplog.text
    async with aclosing(build(tmp_path, "orders.csv")) as again:
        await again.open()
        assert (list_names(again), again.find_failing_checks()) == (["orders"], [])
