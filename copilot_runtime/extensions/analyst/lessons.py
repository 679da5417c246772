"""What a question teaches, for each data set that its SQL was about."""

import re
from collections.abc import Sequence

from copilot_runtime.extensions.analyst.engine.datasets import Dataset
from copilot_runtime.extensions.analyst.memory.turn import Turn
from copilot_runtime.extensions.analyst.session import Session

_WORD = re.compile(r"\w+")


def find_lessons(session: Session) -> Sequence[tuple[Dataset, Turn]]:
    """Return each data set that SQL of a question was about, and what it taught of that.

    SQL is about the question's data set if it reads it, or none that is known; else about the
    first that it reads.
    """
    datasets = {one.name.lower(): one for one in session.list_datasets()}
    first = session.dataset.lower()

    def choose(tables: Sequence[str]) -> str:
        names = [one.lower() for one in tables if one.lower() in datasets]
        return first if first in names or not names else names[0]

    def find_words(sql: str) -> Sequence[str]:
        return _WORD.findall(sql)

    sql = [(choose(session.sql_tables.get(one, ())), one) for one in session.turn_sql]
    failures = [(choose(find_words(one)), (one, why)) for one, why in session.failed_sql]
    lineage = session.findings.lineage
    fixes = [
        (choose(next((each.tables for each in lineage if one in each.fixes), ())), one)
        for one in session.fixes
    ]
    return [
        (
            datasets[name],
            Turn(
                sql=[one for place, one in sql if place == name],
                fixes=[one for place, one in fixes if place == name],
                failures=[one for place, one in failures if place == name],
                columns=datasets[name].columns,
            ),
        )
        for name in dict.fromkeys(place for place, _ in sql)
        if name in datasets  # it may have been deleted meanwhile
    ]
