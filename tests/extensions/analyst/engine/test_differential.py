"""The tables of generated files have the values that other readers find in them."""

from contextlib import aclosing
from pathlib import Path

import pytest

from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from tests.extensions.analyst.engine.generated_files import list_differences, make_file

pytestmark = pytest.mark.anyio

FILES = 100


@pytest.mark.parametrize("first", [0, FILES])
@pytest.mark.stalls(reason="the other readers run in the test itself")
async def test_no_value_of_a_file_differs_in_silence(
    tmp_path: Path, options: EngineOptions, first: int
) -> None:
    """Each equals what DuckDB, pandas or openpyxl reads, or the description says why not."""
    files = [make_file(tmp_path, seed) for seed in range(first, first + FILES)]
    engine = Engine(options, [parse_source(f"{it.path.stem}={it.path}") for it in files])
    await engine.open()
    differences: list[str] = [*map(str, engine.problems.values())]
    async with aclosing(engine):
        for file in files:
            name = file.path.stem
            if name in engine.datasets:
                rows = (await engine.run(f"FROM {name}", limit=1_000)).rows
                description = engine.datasets[name].description
                found = list_differences(file, rows, description)
                differences += [f"{file.path.name}: {it} ({description})" for it in found]
    assert differences == []
