"""An engine over the tables of the conformance cases."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import duckdb
import pytest

from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source

FIXTURE = (
    "CREATE TABLE orders(id INTEGER, customer VARCHAR, amount DOUBLE, paid_at TIMESTAMP)",
    "INSERT INTO orders SELECT i, 'c' || i % 3, i / 2, TIMESTAMP '2026-01-01' + INTERVAL (i) DAY "
    "FROM range(10) t(i)",
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a DuckDB file with the table `orders`."""
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        for statement in FIXTURE:
            connection.execute(statement)
    return path


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    return EngineOptions(folder=tmp_path / "store", threads=1)


@pytest.fixture
async def engine(
    anyio_backend: str, shop: Path, options: EngineOptions
) -> AsyncGenerator[Engine, None]:
    engine = Engine(options, [parse_source(str(shop))])
    await engine.open()
    async with aclosing(engine):
        yield engine
