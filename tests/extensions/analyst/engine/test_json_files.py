"""A JSON file becomes a table without a lost value, and doubtful choices are in its description."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from tests.extensions.analyst.engine.test_csv import Rows, read

pytestmark = pytest.mark.anyio

_MANY = '{"a":1}\n' * 50_000

JSON: Mapping[str, tuple[Mapping[str, Any], Rows, str]] = {
    '{"a":1}\n\n{"a":2}\n{"a":3': (
        {},
        [(1,), (2,)],
        "1 line is malformed and left out: 4.",
    ),
    '[{"d":"2026-01-01","t":""},{"d":"2026-01-01 10:00","t":"2026-01-01T12:00:00+02:00"}]': (
        {},
        [
            (datetime(2026, 1, 1), None),
            (datetime(2026, 1, 1, 10), datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ],
        "",
    ),
    '[{"d":"01-02-2026","z":"01234","n":{"d":"2026-01-01"},"t":""}]': (
        {},
        [("01-02-2026", "01234", {"d": "2026-01-01"}, "")],
        "'d' is a text: its dates may begin with the day or the month; `dates: day-first` in the "
        "settings of the source says which.",
    ),
    '[{"i":12345678901234567890123,"m":9007199254740993},{"i":7,"m":0.5}]': (
        {},
        [(12345678901234567890123, 9007199254740992.0), (7, 0.5)],
        "'m' has numbers of more than 15 digits, which are rounded.",
    ),
    '[{"r":"N","p":"A","v":1},{"r":"N","p":"B","v":2},{"r":"N","p":"Total","v":3}]': (
        {},
        [("N", "A", 1), ("N", "B", 2), ("N", "Total", 3)],
        "Lines with 'Total' in 'p': 1. Leave them out of sums.",
    ),
    '[{"id":1},{"id":"2"},{"id":null}]': (
        {},
        [("1",), ("2",), (None,)],
        "'id' is a text: it has values of different types.",
    ),
    '[{"d":"01-02-2026","z":"12.50","n":5}]': (
        {"dates": "day-first", "columns": {"z": "double", "N": "varchar", "q": "date"}},
        [(date(2026, 2, 1), 12.5, "5")],
        "The settings give a type to columns that are not here: q.",
    ),
}


@pytest.mark.parametrize("text", JSON)
async def test_a_file_has_the_values_that_a_person_reads(
    tmp_path: Path, options: EngineOptions, text: str
) -> None:
    (tmp_path / "t.json").write_text(text)
    told, rows, description = JSON[text]
    _, found, doubts = await read(options, tmp_path / "t.json", **told)
    assert ([*found], doubts) == (rows, description)


async def test_late_rows_decide_about_types_as_the_first_ones_do(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "t.jsonl").write_text(_MANY + '{"a":1.5,"b":"x"}\n')
    names, rows, _ = await read(options, tmp_path / "t.jsonl")
    assert (names, rows[-1]) == (["a", "b"], (1.5, "x"))


async def test_a_file_with_a_broken_line_takes_no_rows_of_another(
    tmp_path: Path, options: EngineOptions
) -> None:
    (tmp_path / "a.json").write_text('{"a":1}\n{"a":')
    (tmp_path / "b.json").write_text('[\n  {\n    "a": 2\n  }\n]\n')
    _, rows, description = await read(options, tmp_path / "*.json")
    assert ({*map(tuple, rows)}, description) == (
        {(1,), (2,)},
        "1 line is malformed and left out: 2.",
    )
