"""Copies follow their sources: whole, once, and the old one stays if a new one fails."""

import asyncio
import gzip
import os
import sqlite3
import threading
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from copilot_runtime.api.budget import Budget
from copilot_runtime.api.run_input import CURRENT_RUN, RunSlot
from copilot_runtime.base.errors import ConfigurationFailed, LimitExceeded
from copilot_runtime.extensions.analyst.engine import streams
from copilot_runtime.extensions.analyst.engine.copies import Copy
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused, QueryFailed
from copilot_runtime.extensions.analyst.engine.postgres import Export, ExportColumn
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import Progress, parse_source
from copilot_runtime.extensions.analyst.engine.store import Manifest, Store
from copilot_runtime.extensions.analyst.sql.rules import Scope
from tests.database.test_private_file import read_elsewhere
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


async def read(engine: Engine, sql: str) -> Sequence[Any]:
    return (await engine.run(sql, limit=100)).rows


async def test_files_of_all_formats_become_data_sets(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "Sales 2026.csv").write_text("day,amount\n2026-01-01,3\n")
    (tmp_path / "order.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    _write_parquet(tmp_path / "seven.parquet")
    places = [str(tmp_path / name) for name in ("*.csv", "*.jsonl", "seven.parquet")]
    moments: list[Progress] = []
    engine = Engine(options, [parse_source(place) for place in places])
    await engine.open(moments.append)
    async with aclosing(engine):
        assert [*engine.datasets] == ["sales_2026", "order_data", "seven"]
        assert await read(engine, "SELECT sum(a) FROM order_data") == [(3,)]
        assert [(one.source, one.rows) for one in moments if one.is_done] == [
            ("sales_2026", 1),
            ("order", 2),
            ("seven", 1),
        ]


def _write_endless(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE one(n)")
        file.execute(
            "CREATE VIEW endless AS WITH RECURSIVE r(n) AS "
            "(SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) AS n FROM r"
        )


def _write_bomb(path: Path) -> None:
    rels = '<r><Relationship Id="{}" Type="/{}" Target="{}"/>{}</r>'
    texts = '<Relationship Id="b" Type="/sharedStrings" Target="texts.xml"/>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("_rels/.rels", rels.format("a", "officeDocument", "book.xml", ""))
        file.writestr("_rels/book.xml.rels", rels.format("a", "worksheet", "sheet.xml", texts))
        file.writestr("book.xml", '<b><sheet name="S" id="a"/></b>')
        file.writestr("sheet.xml", '<s><row><c t="s"><v>0</v></c></row></s>')
        file.writestr("texts.xml", f"<s><si><t>{'x' * 400_000_000}</t></si></s>")


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("view.sqlite", _write_endless, "it takes more time than one of its size may take."),
        ("bomb.xlsx", _write_bomb, "it needs more memory than it may have."),
    ],
    ids=["endless", "bomb"],
)
async def test_a_source_that_takes_too_much_is_left_out_alone(
    tmp_path: Path, options: EngineOptions, name: str, write: Callable[[Path], None], reason: str
) -> None:
    await asyncio.to_thread(write, tmp_path / name)
    (tmp_path / "small.csv").write_text("n\n1\n")
    options = replace(options, memory_limit="128MB", copy_timeout=1 if "view" in name else 60)
    places = (name, "small.csv")
    engine = Engine(options, [parse_source(str(tmp_path / place)) for place in places])
    await engine.open()
    async with aclosing(engine):
        problems = [error.public for error in engine.problems.values()]
        assert problems == [f"The data source {name!r} cannot be read: {reason}"]
        assert await read(engine, "SELECT n FROM small") == [(1,)]


async def test_a_glob_with_a_name_is_one_data_set(tmp_path: Path, options: EngineOptions) -> None:
    for number in range(3):
        (tmp_path / f"part-{number}.csv").write_text(f"n\n{number}\n")
    (tmp_path / "part-3.csv").touch()
    (tmp_path / "part-4.csv").write_text("n,m\n4,1\n")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"n\n8\n"))
    places = (f"parts={tmp_path}/part-*.csv", f"{tmp_path}/packed.csv.gz")
    engine = Engine(options, [*map(parse_source, places)])
    await engine.open()
    async with aclosing(engine):
        assert await read(engine, "SELECT sum(n), sum(m) FROM parts") == [(7, 1)]
        assert await read(engine, "FROM packed") == [(8,)]
        description = engine.datasets["parts"].description
        assert "part-3.csv is left out: the file is empty." in description
        assert "different columns" in description


@in_one_test("name", ["", "parts="])
async def test_links_out_of_the_folder_of_a_glob_and_to_its_files_are_left_out(
    tmp_path: Path, options: EngineOptions, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (tmp_path / "data" / ".real").mkdir(parents=True)
    for place in ("secret.csv", "data/a.csv", "data/.real/b.csv"):
        (tmp_path / place).write_text("n\n1\n")
    (tmp_path / "data" / "b.csv").symlink_to(".real/b.csv")
    (tmp_path / "data" / "out.csv").symlink_to("../secret.csv")
    (tmp_path / "data" / "twin.csv").symlink_to("a.csv")
    engine = Engine(options, [parse_source(f"{name}{tmp_path}/data/*.csv")])
    await engine.open()
    async with aclosing(engine):
        datasets = engine.datasets.values()
        assert ([*engine.datasets], sum(it.row_count for it in datasets)) == (
            ["parts"] if name else ["a", "b"],
            2,
        )
        description = next(iter(datasets)).description
        for text in (description, caplog.text):
            assert "out.csv" in text and "is left out: it leads out of the folder." in text
            assert "is left out: it is another name of a file in the folder." in text


async def test_a_late_row_that_is_unlike_the_first_is_copied(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "late.csv").write_text("n\n" + "1\n" * 30_000 + "many\n")
    engine = Engine(options, [parse_source(str(tmp_path / "late.csv"))])
    await engine.open()
    async with aclosing(engine):
        assert engine.datasets["late"].columns[0].type == "VARCHAR"
        assert engine.datasets["late"].row_count == 30_001


async def test_tables_of_sqlite_have_the_types_of_their_values(
    tmp_path: Path, options: EngineOptions
) -> None:
    with closing(sqlite3.connect(tmp_path / "traces.db")) as connection, connection:
        connection.execute("CREATE TABLE spans(n, x REAL, s TEXT, b BLOB)")
        rows = [(1, 0.5, 'a "b",\nc', b"\x00\xff"), (None, 2, "\\N", None)]
        connection.executemany("INSERT INTO spans VALUES (?, ?, ?, ?)", rows)
    source = parse_source({"location": str(tmp_path / "traces.db"), "for_operators": "yes"})
    assert source.for_operators is False
    source = parse_source({"location": str(tmp_path / "traces.db"), "for_operators": True})
    engine = Engine(options, [source])
    await engine.open()
    async with aclosing(engine):
        assert await read(engine, "FROM spans ORDER BY n") == [
            (1, 0.5, 'a "b",\nc', b"\x00\xff"),
            (None, 2.0, "\\N", None),
        ]
        assert engine.list_datasets(Scope(user="ada")) == []
        assert len(engine.list_datasets(Scope(user="ada", is_operator=True))) == 1


def test_a_table_of_a_database_that_cannot_be_copied_is_left_out(
    tmp_path: Path, options: EngineOptions
) -> None:
    columns = [ExportColumn(name="n", select="n", convert="CAST({} AS INTEGER)")]
    exports = [Export(table=name, file=tmp_path / name, columns=columns) for name in ("a", "b")]
    exports[0].file.write_text("one")
    exports[1].file.write_text("2")
    copy = Copy(tmp_path / "part", options)
    tables = copy.copy_exports(exports, str)
    copy.discard()

    [table] = tables
    assert (table.name, table.notes) == ("b", ["The table 'a' cannot be read and is left out."])


async def test_a_database_of_sqlite_loses_only_what_cannot_be_read(
    tmp_path: Path, options: EngineOptions
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as connection:
        wide = ", ".join(f"c{number}" for number in range(1_999))
        connection.executescript(
            f"CREATE TABLE wide({wide}); INSERT INTO wide(c0, c1998) VALUES (1, 2.5);"
            "CREATE VIEW broken AS SELECT * FROM gone;"
            "CREATE VIRTUAL TABLE notes USING fts5(text); INSERT INTO notes VALUES ('hello');"
            "CREATE TABLE days(d DATE, t DATETIME, none DATE, n INTEGER);"
            "INSERT INTO days VALUES ('2026-01-05', '2026-01-05T08:30:00Z', '2026-02-31', 1),"
            "('2026-01-06', '2026-01-06', NULL, 'two');"
        )
        connection.commit()
    with closing(sqlite3.connect(tmp_path / "town.sqlite")) as connection, connection:
        connection.execute('CREATE TABLE streets("", b)')
        connection.execute("INSERT INTO streets VALUES (1, CAST(x'4dfc6c' AS TEXT))")
    (tmp_path / "damaged.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 4_000)
    engine = Engine(options, [parse_source(str(tmp_path / "*.sqlite"))])
    await engine.open()
    async with aclosing(engine):
        assert sorted(engine.datasets) == ["days", "notes", "streets", "wide"]
        assert [*engine.problems] == ["damaged"]
        assert [it.name for it in engine.datasets["streets"].columns] == ["column0", "b"]
        assert await read(engine, "SELECT b FROM streets") == [("M\u00fcl",)]
        streets = engine.datasets["streets"].description
        assert streets == "Texts that are not UTF-8 are read as cp1252: 1."
        assert engine.datasets["days"].description == (
            "The view 'broken' cannot be read and is left out. 'none' is a text: not all of its "
            "values are a DATE. 'n' is a text: it has numbers and other values."
        )
        assert await read(engine, "SELECT d, t, none, n FROM days") == [
            (date(2026, 1, 5), datetime(2026, 1, 5, 8, 30), "2026-02-31", "1"),
            (date(2026, 1, 6), datetime(2026, 1, 6), None, "two"),
        ]
        assert await read(engine, "SELECT c0, c1998 FROM wide") == [(1, 2.5)]


async def test_a_copy_leaves_its_log_to_a_database_that_this_process_has_open(
    tmp_path: Path, options: EngineOptions
) -> None:
    path, log = tmp_path / "traces.db", tmp_path / "traces.db-wal"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE spans(n)")
        connection.commit()
        engine = Engine(options, [parse_source(str(path))])
        await engine.open()
        await engine.aclose()
        before = log.stat().st_ino

        read_elsewhere(path)

        assert log.stat().st_ino == before


async def test_a_source_that_has_not_changed_is_not_copied_again(
    shop: Path, options: EngineOptions
) -> None:
    source = parse_source(str(shop))
    engine = Engine(options, [source])
    await engine.open()
    before = engine.datasets
    assert await engine.refresh() == []
    await engine.aclose()
    again = Engine(options, [source])
    await again.open()
    async with aclosing(again):
        assert again.datasets == before


async def test_queries_go_on_while_a_source_is_refreshed(engine: Engine, shop: Path) -> None:
    async with aclosing(engine.stream("SELECT id FROM orders", batch_rows=4)) as rows:
        first = await anext(rows)
        with duckdb.connect(str(shop)) as connection:
            connection.execute("DELETE FROM orders WHERE id > 0")
        assert await engine.refresh() == ["shop"]
        rest = [row for batch in [row async for row in rows] for row in batch]
    assert len([*first, *rest]) == 10
    assert await read(engine, f"SELECT count(*) FROM {engine.datasets['orders'].physical}") == [
        (1,)
    ]


async def test_readers_who_stop_reading_lose_their_places_to_those_who_wait(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0)
    async with AsyncExitStack() as stack:
        stalled = [
            await stack.enter_async_context(aclosing(engine.stream("FROM orders", batch_rows=1)))
            for _ in range(engine.options.most_workers)
        ]
        for rows in stalled:
            await anext(rows)
        async with aclosing(engine.stream("FROM orders", batch_rows=4)) as rows:
            assert sum([len(batch) async for batch in rows]) == 10
        with pytest.raises(QueryFailed, match="Nothing was read"):
            await anext(stalled[0])


async def test_a_failed_copy_leaves_the_old_one(tmp_path: Path, options: EngineOptions) -> None:
    file = tmp_path / "sales.parquet"
    _write_parquet(file)
    engine = Engine(options, [parse_source(str(file))])
    await engine.open()
    async with aclosing(engine):
        file.write_bytes(b"PAR1 and then it broke")
        assert await engine.refresh() == []
        assert await read(engine, "FROM sales") == [(7,)]
        assert str(tmp_path) not in engine.problems["sales"].public
    assert len([*options.folder.glob("sales-*")]) == 1


async def test_a_source_that_is_missing_leaves_the_others_and_is_found_later(
    tmp_path: Path, options: EngineOptions
) -> None:
    names = ("here.csv", "later.csv", "later*.parquet")
    (tmp_path / names[0]).write_text("a\n1\n")
    engine = Engine(options, [parse_source(str(tmp_path / name)) for name in names])
    await engine.open()
    assert [*engine.datasets] == ["here"]
    assert len(engine.problems) == 2
    assert all(str(tmp_path) not in error.public for error in engine.problems.values())
    (tmp_path / names[1]).write_text("b\n2\n")
    assert await engine.refresh() == ["later"]
    assert len(engine.problems) == 1
    assert await read(engine, "SELECT b FROM later") == [(2,)]
    await engine.aclose()


async def test_a_copy_that_was_killed_leaves_nothing_behind(
    shop: Path, options: EngineOptions
) -> None:
    options.folder.mkdir()
    (options.folder / "orders-0123456789abcdef.part").write_bytes(b"half of it")
    (options.folder / "orders-0123456789abcdef.part-0.csv").write_bytes(b"half of it")
    engine = Engine(options, [parse_source(str(shop))])
    await engine.open()
    async with aclosing(engine):
        assert [*options.folder.glob("*.part*")] == []


async def test_a_copy_that_is_broken_is_made_again(shop: Path, options: EngineOptions) -> None:
    engine = Engine(options, [parse_source(str(shop))])
    await engine.open()
    await engine.aclose()
    next(options.folder.glob("shop-*.duckdb")).write_bytes(b"not a database")
    await engine.open()
    async with aclosing(engine):
        assert await read(engine, "SELECT count(*) FROM orders") == [(10,)]


async def test_a_second_process_reads_and_does_not_write(engine: Engine) -> None:
    second = Engine(engine.options, engine.sources)
    await second.open()
    async with aclosing(second):
        with pytest.raises(DatasetRefused, match="another process"):
            await second.save("mine", "SELECT 1 AS n", owner="ada")
        saved = await engine.save("mine", "SELECT 1 AS n", owner="ada")
        assert await read(second, f"FROM {saved.name}") == [(1,)]


async def test_a_saved_set_is_replaced_and_deleted_only_by_its_owner(engine: Engine) -> None:
    await engine.save("mine", "SELECT 1 AS n", owner="ada")
    saved = await engine.save("mine", "SELECT 2 AS n -- two", owner="ada")
    other = await engine.save("mine", "SELECT 3 AS n", owner="bob")
    assert await read(engine, f"FROM {saved.name}") == [(2,)]
    with pytest.raises(DatasetRefused):
        await engine.delete(other.name, "ada")
    await engine.delete("mine", "bob")
    assert engine.count_bytes("ada") == engine.count_bytes("a", is_prefix=True) > 0
    assert engine.count_bytes("bob") == 0
    assert sorted(engine.datasets) == [saved.name, "orders"]


@in_one_test("error", [OSError("full"), None])
async def test_a_change_that_is_cancelled_twice_while_it_is_written_is_whole(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    begun, release = threading.Event(), threading.Event()
    write = Store.write

    def wait(store: Store, manifest: Manifest) -> None:
        begun.set()
        release.wait()
        if error:
            raise error
        write(store, manifest)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", wait)
        task = asyncio.ensure_future(engine.save("seven", "SELECT 7 AS n", owner="ann"))
        await asyncio.to_thread(begun.wait)
        for _ in range(2):
            task.cancel()
            await asyncio.wait({task}, timeout=0)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    saved = [it.name for it in engine.datasets.values() if it.owner == "ann"]
    stored = Store(engine.options.folder).read().entries
    assert [it.tables[0].name for it in stored if it.owner == "ann"] == saved
    assert [await read(engine, f"FROM {name}") for name in saved] == ([] if error else [[(7,)]])


async def test_the_name_of_a_saved_set_tells_nothing_of_those_of_others(engine: Engine) -> None:
    alone = await engine.save("layoffs", "SELECT 1 AS n", owner="bob")
    await engine.delete("layoffs", "bob")
    await engine.save("layoffs", "SELECT 2 AS n", owner="ada")
    beside = await engine.save("layoffs", "SELECT 1 AS n", owner="bob")
    nobodys = await engine.save("layoffs", "SELECT 1 AS n", owner="")

    assert alone.name == beside.name != "ds_layoffs"
    assert nobodys.name == "ds_layoffs"


async def test_a_set_that_cannot_be_saved_changes_nothing(engine: Engine) -> None:
    before = dict(engine.datasets)
    endless = "SELECT i FROM range(10000000000) t(i)"
    for sql in ("SELECT nothing FROM orders", "DROP TABLE orders", "SELECT 1; SELECT 2", endless):
        with pytest.raises(QueryFailed):
            await engine.save("mine", sql, owner="ada")
    await engine.wait_idle()
    assert engine.datasets == before
    assert [*engine.options.folder.glob("*.part*")] == []


async def test_a_set_that_grows_too_large_is_stopped(shop: Path, options: EngineOptions) -> None:
    engine = Engine(replace(options, max_file=2_000_000), [parse_source(str(shop))])
    await engine.open()
    async with aclosing(engine):
        with pytest.raises(QueryFailed, match="too large"):
            await engine.save(
                "mine",
                "SELECT hash(i) AS a, hash(i + 1) AS b FROM range(400000) t(i)",
                owner="ada",
            )


async def test_each_user_saves_so_many_sets_and_replaces_those(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.analyst.engine.store.MOST_OF_ONE", 2)
    for name in ("one", "two"):
        await engine.save(name, "SELECT 1 AS n", owner="ada")
    with pytest.raises(DatasetRefused, match="2 data sets already") as caught:
        await engine.save("three", "SELECT 3 AS n", owner="ada")
    assert "DELETE analyst/datasets" in (caught.value.hint or "")
    saved = await engine.save("two", "SELECT 4 AS n", owner="ada")
    await engine.save("three", "SELECT 3 AS n", owner="bob")
    assert await read(engine, f"FROM {saved.name}") == [(4,)]


async def test_of_data_sets_at_once_the_one_beyond_the_storage_is_not_saved(engine: Engine) -> None:
    async def reserve(_size: int) -> Callable[[], None]:
        if engine.count_bytes("ada"):
            raise LimitExceeded("You have stored enough.")
        return lambda: None

    CURRENT_RUN.set(RunSlot(None, Budget(reserve_storage=reserve)))
    saving = (engine.save(f"s{number}", "SELECT 1 AS n", owner="ada") for number in range(3))
    errors = [str(one) for one in await asyncio.gather(*saving, return_exceptions=True)]

    assert errors.count("You have stored enough.") == 2


def _write_parquet(path: Path) -> None:
    duckdb.execute(f"COPY (SELECT 7 AS n) TO '{path}' (FORMAT parquet)")


def _write_noise(path: Path) -> None:
    path.write_bytes(os.urandom(200))


def _write_latin(path: Path) -> None:
    path.write_bytes(b"name\n" + "Z\u00fcrich".encode("latin-1") + b"\n")


@in_one_test("spoil", [_write_latin, _write_noise, Path.mkdir])
async def test_a_source_that_is_no_table_is_refused_without_its_path(
    tmp_path: Path, options: EngineOptions, spoil: Callable[[Path], object]
) -> None:
    spoil(tmp_path / "bad.csv")
    engine = Engine(options, [parse_source(str(tmp_path / "bad.csv"))])
    try:
        await engine.open()
    except (DatasetRefused, ConfigurationFailed) as error:
        assert str(tmp_path) not in error.public
    await engine.aclose()


@in_one_test(
    "value",
    ["", "ftp://x/y.csv", "notes.docx", {"location": "a.csv", "mode": "attach"}, {"place": "x"}, 3],
)
def test_a_malformed_source_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationFailed):
        parse_source(value)


async def test_lines_of_totals_are_found_in_files_of_types_and_in_databases(
    tmp_path: Path, options: EngineOptions
) -> None:
    rows = [("a", 5), ("b", 6), ("Total", 11)]
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute("CREATE TABLE s (n TEXT, v INTEGER)")
        database.executemany("INSERT INTO s VALUES (?, ?)", rows)
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE d AS SELECT n, v FROM (VALUES ('a', 5), ('Total', 11)) t(n, v)"
        )
        connection.execute(f"COPY d TO '{tmp_path / 'p.parquet'}'")
    names = ["s.db", "d.duckdb", "p.parquet"]
    engine = Engine(options, [parse_source(str(tmp_path / name)) for name in names])
    await engine.open()
    async with aclosing(engine):
        assert [it.totals for it in engine.datasets.values()] == [{"n": ["Total"]}] * 3
