"""Cases of the areas `engine_sandbox` and `schema_fingerprint`, as files of cases write them."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.datasets import fingerprint_schema
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut
from copilot_runtime.extensions.analyst.engine.options import EngineOptions
from copilot_runtime.extensions.analyst.engine.sandbox import Sandbox
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from copilot_runtime.extensions.analyst.results import Column


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
        sandbox.retire()


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
