"""The invented data of `examples/analyst`: small, the same each time, with things to find."""

from pathlib import Path
from typing import Any

import duckdb

from tests.in_one_test import in_one_test
from tests.test_examples import EXAMPLES, load_example

DATA = EXAMPLES / "analyst" / "data"


def query(sql: str) -> list[tuple[Any, ...]]:
    return duckdb.connect().execute(sql.format(data=DATA)).fetchall()


def test_its_script_makes_the_files_that_are_here(tmp_path: Path) -> None:
    load_example("analyst", "make_data").write_data(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in DATA.iterdir()
    )
    for name in ("customers.csv", "eval_data.csv", "kpi_data.csv"):
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()
    difference = f"FROM '{tmp_path / 'orders.parquet'}' EXCEPT FROM '{DATA / 'orders.parquet'}'"
    assert query(difference) == []


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 300_000


@in_one_test(
    ("sql", "expected"),
    [
        (
            "SELECT product FROM '{data}/orders.parquet' WHERE ordered_at >= '2026-02-01' "
            "GROUP BY product ORDER BY avg(returned::INT) DESC LIMIT 1",
            "Trail lantern",
        ),
        (
            "SELECT source_name FROM '{data}/eval_data.csv' WHERE model = 'lark-2' "
            "GROUP BY source_name ORDER BY avg(faithfulness_score) LIMIT 1",
            "returns_bot",
        ),
        ("SELECT count(*) FROM '{data}/eval_data.csv' WHERE latency = 'n/a'", 39),
        (
            "SELECT string_agg(DISTINCT manager, ', ' ORDER BY manager) "
            "FROM '{data}/orders.parquet'",
            "ann, ben",
        ),
    ],
)
def test_there_is_something_to_find(sql: str, expected: object) -> None:
    assert query(sql) == [(expected,)]
