"""Tables of PostgreSQL are copied with their types, and again when they change."""

from contextlib import aclosing
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest

from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from tests.threads.cluster import Cluster

pytestmark = pytest.mark.anyio


async def execute(url: str, *statements: str) -> None:
    connection: Any = await import_module("asyncpg").connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def test_values_of_all_types_arrive_as_they_are(
    database: str, options: EngineOptions
) -> None:
    await execute(
        database,
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        'CREATE TABLE "All Types" (id bigint, price numeric(10, 2), ratio numeric, ok boolean, '
        "note text, at timestamptz, day date, key uuid, data jsonb, raw bytea, tags text[], "
        "numbers int[], feel mood, span interval, gone int)",
        'ALTER TABLE "All Types" DROP COLUMN gone',
        """INSERT INTO "All Types" VALUES (1, 12.50, 0.5, true, E'a "b",\\n\\\\N', """
        "'2026-01-02 03:04:05+02', '2026-01-02', '00000000-0000-0000-0000-000000000001', "
        """'{"a": [1]}', '\\x00ff', ARRAY['x', NULL, 'y,z'], ARRAY[1, 2], 'good', '1 day'), """
        "(2, 'NaN', 'NaN', NULL, '', 'infinity', '0044-03-15 BC', NULL, NULL, NULL, NULL, NULL, "
        "NULL, NULL)",
    )
    engine = Engine(options, [parse_source(database)])
    await engine.open()
    async with aclosing(engine):
        table = await engine.run(
            'SELECT id, price, ratio, ok, note, "at", day, key, data, raw, tags, numbers, feel '
            "FROM all_types ORDER BY id",
            limit=10,
        )
        assert table.rows[0] == (
            1,
            Decimal("12.50"),
            0.5,
            True,
            'a "b",\n\\N',
            datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
            date(2026, 1, 2),
            UUID(int=1),
            '{"a": [1]}',
            b"\x00\xff",
            ["x", None, "y,z"],
            [1, 2],
            "good",
        )
        assert table.rows[1][1] is None
        assert table.rows[1][4] == ""
        assert table.rows[1][7:] == (None,) * 6


async def test_a_table_is_copied_again_once_it_has_changed(
    database: str, options: EngineOptions
) -> None:
    await execute(database, "CREATE TABLE orders AS SELECT generate_series(1, 5000) AS id")
    engine = Engine(options, [parse_source({"name": "shop", "location": database})])
    await engine.open()
    async with aclosing(engine):
        await execute(database, "ALTER TABLE orders ADD COLUMN paid boolean DEFAULT true")
        assert await engine.refresh() == ["shop"]
        assert [column.type for column in engine.datasets["orders"].columns] == [
            "INTEGER",
            "BOOLEAN",
        ]
        assert engine.datasets["orders"].row_count == 5000


async def test_a_database_that_is_down_leaves_the_old_copy(
    database: str, cluster: Cluster, options: EngineOptions
) -> None:
    await execute(database, "CREATE TABLE orders AS SELECT 7 AS id")
    engine = Engine(options, [parse_source(database)])
    await engine.open()
    async with aclosing(engine):
        cluster.stop()
        try:
            assert await engine.refresh() == []
            assert (await engine.run("FROM orders", limit=1)).rows == [(7,)]
            assert "host=" not in engine.problems["postgres"].public
        finally:
            cluster.start()


async def test_no_error_shows_the_password(options: EngineOptions) -> None:
    engine = Engine(options, [parse_source("postgresql://me:hunter2@127.0.0.1:1/shop")])
    with pytest.raises(DatasetRefused) as failure:
        await engine.open()
    assert "hunter2" not in f"{failure.value} {failure.value.public} {failure.value.hint}"
