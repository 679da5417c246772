"""Calls in SQL that would take all memory, and that nothing interrupts, stop when they begin."""

from pathlib import Path

import pytest

from copilot_runtime.extensions.analyst.engine.errors import QueryFailed
from copilot_runtime.extensions.analyst.scope import Scope
from tests.extensions.analyst.analysts import build_analyst

pytestmark = pytest.mark.anyio

LONG = "(SELECT string_agg('orders', ',') AS x FROM generate_series(1, 30000))"


async def test_texts_are_made_and_compared_up_to_a_length(tmp_path: Path) -> None:
    analyst = build_analyst(tmp_path)
    await analyst.open()

    async def run(sql: str) -> object:
        query = analyst.guard_sql(sql, Scope())
        return (await analyst.engine.run(query, limit=1)).rows[0][0]

    assert await run("SELECT levenshtein(city, owner) FROM orders ORDER BY ALL DESC") == 4
    assert await run("SELECT repeat(city, 2) FROM orders ORDER BY ALL") == "OsloOslo"
    assert await run("SELECT replace(city, 's', owner) FROM orders ORDER BY ALL") == "Oannlo"
    assert await run("SELECT repeat(city, NULL) FROM orders") is None
    for call in (
        "levenshtein(x, 'a')",
        "damerau_levenshtein(x, x)",
        "jaro_similarity('a', x)",
        "jaro_winkler_similarity(x, x)",
        "repeat(x, 2)",
        "repeat('a', length(x))",
        "replace(x, 'o', x)",
        "regexp_replace(x, '.', x, 'g')",
    ):
        with pytest.raises(QueryFailed, match="too long"):
            await run(f"SELECT length({call}::VARCHAR) FROM {LONG}")
    await analyst.aclose()
