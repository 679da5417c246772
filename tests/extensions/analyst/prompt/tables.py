"""Metadata of tables, as the engine would count it."""

from collections.abc import Sequence
from typing import Any

from copilot_runtime.extensions.analyst.engine.metadata import ColumnMetadata, TableMetadata


def make_column(name: str, type: str = "VARCHAR", **counts: Any) -> ColumnMetadata:
    return ColumnMetadata(name=name, type=type, **counts)


def make_table(
    columns: Sequence[ColumnMetadata], *, name: str = "eval_data", rows: int = 1_000
) -> TableMetadata:
    times = [one.name for one in columns if one.is_temporal]
    return TableMetadata(
        name=name,
        row_count=rows,
        columns=columns,
        fingerprint="0123456789ab",
        time_column=times[0] if times else None,
        time_range=("2026-01-01 00:00:00", "2026-02-11 15:00:00") if times else None,
    )


EVALUATION = make_table(
    [
        make_column("dataset_id", unique_count=1_000, null_percent=0.0),
        make_column("query", unique_count=998, null_percent=0.0, values=["q1", "q2"]),
        make_column(
            "faithfulness_score",
            "DOUBLE",
            unique_count=100,
            null_percent=2.5,
            minimum=0.0,
            maximum=0.99,
            average=0.495,
        ),
        make_column(
            "environment",
            unique_count=3,
            null_percent=0.0,
            values=["production", "staging", "dev"],
            is_complete=True,
        ),
        make_column("ts", "TIMESTAMP", unique_count=1_000, null_percent=0.0),
    ]
)
