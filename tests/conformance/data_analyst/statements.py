"""SQL: what the guard lets pass, what the engine does with what it should not, fingerprints."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.datasets import fingerprint_schema
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut
from copilot_runtime.extensions.analyst.engine.loading import locate_files
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions, Sandbox
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.analyst.sql.parsing import fingerprint_sql, hash_sql
from copilot_runtime.extensions.analyst.sql.rules import Scope, SqlRefused
from copilot_runtime.telemetry.semconv import ERROR_TYPE
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts
from tests.conformance.data_analyst.world import World, build_rules

_LIMIT = 100


async def answer_guard(given: Given, world: World) -> Facts:
    """Guard SQL; `limit` is set into what passes, `agent_name` restricts whose rows it reads."""
    engine = await world.open_engine()
    rules = build_rules(engine, tables=given.get("allowed_tables"))
    scope = Scope(agent_name=given.get("agent_name"))
    try:
        query = guard_sql(given["sql"], rules, scope)
    except SqlRefused as refusal:
        return {
            "verdict": refusal.reason,
            "code": refusal.reason,
            "reason": refusal.message,
            "hint": refusal.hint,
            "allowed": False,
            "blocked": True,
        }
    limited = query.with_limit(given.get("limit", _LIMIT))
    return {
        "verdict": "ok",
        "code": None,
        "allowed": True,
        "blocked": False,
        "sql": query.sql,
        "shown_sql": query.display_sql,
        "limited_sql": limited,
        "tables": sorted(query.tables),
        "columns": sorted(query.columns),
    }


async def answer_sandbox(given: Given, world: World) -> Facts:
    """Let the engine itself execute SQL: with `bypass_guard`, or as a tool does."""
    given.get("connection")  # how the sandbox was made where this was measured
    engine = await world.open_engine()
    timeout = given.get("timeout_s")
    began = time.monotonic()
    facts: dict[str, Any] = {"raises": None, "span": {}}
    try:
        if given.get("bypass_guard") and timeout is None:
            facts["rows"] = execute_unguarded(engine, given["sql"])
        else:
            table = await engine.run(given["sql"], limit=_LIMIT, timeout=timeout)
            facts["rows"] = [list(row) for row in table.rows]
    except duckdb.Error as error:
        facts["raises"] = type(error).__name__
        facts["message"] = str(error)
    except QueryTimedOut as error:
        facts |= {"raises": "InterruptException", "span": {ERROR_TYPE: error.error_type}}
    except QueryFailed as error:
        facts |= {
            "raises": f"{error.exception_type.title().replace(' ', '')}Exception",
            "message": error.message,
        }
    facts["elapsed_s"] = time.monotonic() - began
    facts["blocked"] = facts["raises"] is not None
    facts["value"] = facts["rows"][0][0] if facts.get("rows") else None
    return facts


def execute_unguarded(engine: Engine, sql: str) -> list[list[Any]]:
    """Execute SQL in the sandbox of an engine as if there were no guard."""
    files = locate_files(engine._store, engine._manifest)  # pyright: ignore[reportPrivateUsage]
    sandbox = Sandbox(engine.options, files)
    try:
        result = sandbox.open_cursor().execute(sql)
        return [list(row) for row in result.fetchall()]
    finally:
        sandbox.close()


def answer_fingerprint(given: Given, world: World) -> Facts:
    """Return what is kept of SQL in traces."""
    text = fingerprint_sql(given["sql"])
    return {"fingerprint": text, "text": text, "hash": hash_sql(given["sql"])}


def answer_schema(given: Given, world: World) -> Facts:
    """Return the fingerprint of columns; those of `other_columns` are compared."""
    fingerprint = _fingerprint(given["columns"])
    facts: dict[str, Any] = {"fingerprint": fingerprint, "length": len(fingerprint)}
    for name in ("other_columns", "columns_after", "changed_columns"):
        if name in given:
            facts["same"] = facts["equal"] = _fingerprint(given[name]) == fingerprint
    return facts


def _fingerprint(columns: Any) -> str:
    def read(column: Any) -> Column:
        if isinstance(column, Mapping):
            return Column(column["name"], column["type"])
        return Column(*column)

    return fingerprint_schema([read(column) for column in columns])


def run_fingerprint_case(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fingerprint of `given["columns"]`."""
    columns = [Column(name, type) for name, type in given["columns"]]
    return {"fingerprint": fingerprint_schema(columns)}


async def run_sandbox_case(given: Mapping[str, Any], fixture: Sequence[str]) -> Mapping[str, Any]:
    """Return what becomes of `given["sql"]`: `raises`, `elapsed_s`, `error.type`.

    With `bypass_guard`, DuckDB alone decides: not even our engine looks at it before.
    """
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "fixture.duckdb"
        with duckdb.connect(str(file)) as connection:
            for statement in fixture:
                connection.execute(statement)
        options = EngineOptions(folder=Path(name) / "store")
        start = perf_counter()
        if given.get("bypass_guard"):
            outcome = _run_unchecked(given["sql"], options, file)
        else:
            outcome = await _run_checked(given, options, file)
        return {**outcome, "elapsed_s": perf_counter() - start}


def _run_unchecked(sql: str, options: EngineOptions, file: Path) -> Mapping[str, Any]:
    sandbox = Sandbox(options, {"d1": file})
    try:
        cursor = sandbox.open_cursor()
        cursor.execute(sql)
        return {"raises": None}
    except duckdb.Error as error:
        return {"raises": type(error).__name__}
    finally:
        sandbox.close()


async def _run_checked(
    given: Mapping[str, Any], options: EngineOptions, file: Path
) -> Mapping[str, Any]:
    engine = Engine(options, [parse_source(str(file))])
    await engine.open()
    async with aclosing(engine):
        try:
            await engine.run(given["sql"], limit=100, timeout=given.get("timeout_s"))
        except QueryTimedOut as error:  # DuckDB was interrupted
            return {"raises": "InterruptException", "error.type": error.error_type}
        except QueryFailed as error:
            return {"raises": f"{error.exception_type.replace(' ', '')}Exception"}
    return {"raises": None}
