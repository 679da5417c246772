"""The cases of files, as the runner of cases gives them to us."""

import pytest

from tests.extensions.analyst.engine.cases import run_fingerprint_case, run_sandbox_case
from tests.extensions.analyst.engine.conftest import FIXTURE
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def test_the_fingerprint_is_the_one_of_the_contract() -> None:
    columns = [["faithfulness_score", "DOUBLE"], ["dataset_id", "VARCHAR"]]
    assert run_fingerprint_case({"columns": columns}) == {"fingerprint": "4b5c2d0e4d47"}


@in_one_test(
    ("sql", "error"),
    [
        ("ATTACH '/tmp/evil.duckdb' AS e", "PermissionException"),
        ("INSTALL httpfs", "PermissionException"),
        ("LOAD httpfs", "PermissionException"),
        ("INSERT INTO orders(id) VALUES (1)", "InvalidInputException"),
        ("DROP TABLE orders", "InvalidInputException"),
    ],
)
async def test_what_the_guard_would_stop_stops_in_the_sandbox_too(sql: str, error: str) -> None:
    outcome = await run_sandbox_case({"sql": sql, "bypass_guard": True}, FIXTURE)
    assert outcome["raises"] == error
