"""A session over the tables of the contract's cases."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import duckdb
import pytest

from copilot_runtime.extensions.analyst.engine.datasets import Dataset
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from copilot_runtime.extensions.analyst.result_storage import Downloads, build_chart_store
from copilot_runtime.extensions.analyst.session import Services, Session
from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.analyst.sql.rules import (
    GuardRules,
    Scope,
    TableRule,
    list_safe_functions,
)
from copilot_runtime.extensions.analyst.sql.syntax_tree import list_functions

FIXTURE = (
    "CREATE TABLE eval_data(dataset_id VARCHAR, query VARCHAR, faithfulness_score DOUBLE, "
    "relevance_score DOUBLE, latency VARCHAR, environment VARCHAR, source_name VARCHAR, "
    "ts TIMESTAMP)",
    "INSERT INTO eval_data SELECT 'd'||i, 'q'||i, (i%100)/100.0, ((i*7)%100)/100.0, "
    "CASE WHEN i%10=0 THEN 'n/a' ELSE (i*3)::VARCHAR END, CASE i%3 WHEN 0 THEN 'production' "
    "WHEN 1 THEN 'staging' ELSE 'dev' END, CASE i%2 WHEN 0 THEN 'alpha_bot' ELSE 'beta_bot' END, "
    "TIMESTAMP '2026-01-01' + INTERVAL (i) HOUR FROM range(1000) t(i)",
    "CREATE TABLE kpi_data(kpi_name VARCHAR, kpi_category VARCHAR, kpi_value DOUBLE)",
    "INSERT INTO kpi_data VALUES ('nps','customer',42.0),('csat','customer',4.4),"
    "('revenue','finance',1250000.0)",
    "CREATE TABLE oddities(i HUGEINT, d DECIMAL(10,2), f DOUBLE, b BLOB, u UUID, l INTEGER[], "
    "s STRUCT(a INTEGER), t TIME, z TIMESTAMPTZ, formula VARCHAR)",
    "INSERT INTO oddities VALUES (170141183460469231731687303715884105727, 1.10, 'nan', "
    "'\\xAA'::BLOB, '00000000-0000-0000-0000-000000000001', [1, 2], {'a': 1}, '12:00', "
    "'2026-01-01 00:00:00+00', '=1+1')",
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def _relate(dataset: Dataset, scope: Scope) -> str:
    """Return the rows of a data set that a scope may see."""
    rule = TableRule(physical=dataset.physical, columns=dataset.columns)
    rules = GuardRules(tables={dataset.name: rule}, functions=frozenset())
    return f"({guard_sql(f'SELECT * FROM {dataset.name}', rules, scope).sql})"


@pytest.fixture(scope="module")
async def engine(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Engine]:
    folder: Path = tmp_path_factory.mktemp("tools")
    path = folder / "eval.duckdb"
    with duckdb.connect(str(path)) as connection:
        for statement in FIXTURE:
            connection.execute(statement)
    options = EngineOptions(folder=folder / "store", threads=1)
    engine = Engine(options, [parse_source(str(path))], relate=_relate)
    await engine.open()
    async with aclosing(engine):
        yield engine


@pytest.fixture
def services(engine: Engine) -> Services:
    functions = list_safe_functions(list_functions())

    def build_rules(scope: Scope) -> GuardRules:
        return GuardRules(
            tables={
                one.name: TableRule(physical=one.physical, columns=one.columns)
                for one in engine.list_datasets(scope)
            },
            functions=functions,
        )

    return Services(
        engine=engine,
        build_rules=build_rules,
        downloads=Downloads(engine, lambda sql, scope: guard_sql(sql, build_rules(scope), scope)),
        charts=build_chart_store(),
        approve_saves=False,
    )


@pytest.fixture
def session(services: Services) -> Session:
    return Session(services=services, scope=Scope(user="ann"), dataset="eval_data")
