"""Rows, questions and the SQL that a model would write: the same for everybody.

Peers import this file: nothing but the standard library, and DuckDB where rows are made.
"""

from collections.abc import Sequence
from pathlib import Path

TABLE = "orders"

ROWS = """
SELECT i AS id, TIMESTAMP '2024-01-01' + INTERVAL (i * 60000000 // {rows}) SECOND AS ordered_at,
  ['Oslo', 'Rome', 'Lima', 'Kyoto', 'Accra', 'Quito'][(1 + hash(i) % 6)::BIGINT] AS city,
  ['web', 'shop', 'phone'][(1 + hash(i + 1) % 3)::BIGINT] AS channel,
  'product ' || hash(i + 2) % 500 AS product, 1 + (hash(i + 3) % 9)::INTEGER AS quantity,
  round((hash(i + 4) % 100000) / 100, 2) AS amount,
  CASE WHEN hash(i + 5) % 20 > 0 THEN (hash(i + 6) % 50) / 10 END AS rating,
  hash(i + 7) % 50 = 0 AS is_returned, 'c' || hash(i + 8) % 20000 AS customer
FROM range({rows}) AS r(i)
"""

QUESTIONS: Sequence[tuple[str, str]] = (
    (
        "What was the revenue by city above an amount of {n}?",
        "SELECT city, sum(amount) AS revenue FROM orders WHERE amount > {n} "
        "GROUP BY city ORDER BY revenue DESC LIMIT 100",
    ),
    (
        "How many orders of more than {n} came through each channel?",
        "SELECT channel, count(*) AS orders FROM orders WHERE amount > {n} "
        "GROUP BY channel ORDER BY orders DESC LIMIT 100",
    ),
    (
        "Which ten products above {n} are best rated?",
        "SELECT product, avg(rating) AS mean, count(*) AS n FROM orders WHERE amount > {n} "
        "GROUP BY product HAVING count(*) > 5 ORDER BY mean DESC, product LIMIT 10",
    ),
    (
        "How did revenue develop by month, without amounts below {n}?",
        "SELECT date_trunc('month', ordered_at) AS month, sum(amount) AS revenue FROM orders "
        "WHERE amount >= {n} GROUP BY month ORDER BY month LIMIT 100",
    ),
    (
        "What share of orders above {n} is returned, by city?",
        "SELECT city, avg(CASE WHEN is_returned THEN 1.0 ELSE 0.0 END) AS share FROM orders "
        "WHERE amount > {n} GROUP BY city ORDER BY city LIMIT 100",
    ),
)

ANSWER = "Here is what the data says, with the figures in the table."


def find_question(number: int) -> tuple[str, str]:
    """Return a question and its SQL; no two of them are the same."""
    text, sql = QUESTIONS[number % len(QUESTIONS)]
    return f"{text.format(n=number)} (number {number})", sql.format(n=number)


def find_sql(question: str) -> str:
    """Return the SQL of a question."""
    number = int(question.rpartition("(number ")[2].rstrip(")"))
    return find_question(number)[1]


def make_data(folder: Path, rows: int) -> Path:
    """Return a DuckDB file with the table, which is made if it is not there."""
    import duckdb

    path = folder / f"orders-{rows}-{duckdb.__version__}.duckdb"  # peers need an older one
    if not path.exists():
        part = path.with_suffix(".part")
        with duckdb.connect(str(part)) as connection:
            connection.execute(f"CREATE TABLE {TABLE} AS {ROWS.format(rows=rows)}")
        part.rename(path)
    return path
