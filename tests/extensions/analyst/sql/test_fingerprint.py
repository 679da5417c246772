"""The shape of SQL holds no values."""

from copilot_runtime.extensions.analyst.sql.parsing import fingerprint_sql, hash_sql
from tests.in_one_test import in_one_test


@in_one_test(
    ("sql", "shape"),
    [
        (
            "select  * from t where a='b' and c>-3 -- pw=1",
            "SELECT * FROM t WHERE a = ? AND c > ?",
        ),
        ("SELECT * FROM t WHERE a IN ('x', 'y')", "SELECT * FROM t WHERE a IN (?)"),
        (
            "SELECT a::DECIMAL(10,2) FROM t LIMIT 5",
            "SELECT CAST(a AS DECIMAL(10, 2)) FROM t LIMIT ?",
        ),
        ("SELECT a FROM t WHERE b IS TRUE", "SELECT a FROM t WHERE b IS ?"),
        ("SELECT 1; SELECT 'x'", "SELECT ?; SELECT ?"),
        ("EXPLAIN SELECT 'x'", "EXPLAIN ?"),
    ],
)
def test_every_value_is_a_question_mark(sql: str, shape: str) -> None:
    assert fingerprint_sql(sql) == shape


@in_one_test(
    "sql", ["SELEC * FROM t WHERE pw='hunter2'", "'" * 3, "(" * 9_000, "FROM t" + " JOIN t" * 40]
)
def test_of_a_text_that_is_no_sql_only_a_hash_is_left(sql: str) -> None:
    assert fingerprint_sql(sql) == hash_sql(sql)
    assert len(hash_sql(sql)) == 8


def test_the_hash_is_the_same_for_other_values() -> None:
    assert hash_sql("SELECT 1") == hash_sql("select  2") != hash_sql("SELECT a")
