"""Invents the data of this example: a shop that does not exist, and the evaluation of its bots.

    python examples/analyst/make_data.py

The same rows come out each time, so that questions about them have one right answer.
"""

import csv
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

DATA = Path(__file__).parent / "data"
FIRST, DAYS = date(2025, 1, 1), 546
"""Eighteen months: until the end of June 2026."""

STORES = {"Online": ("ann", 55), "Harbour": ("ben", 25), "Market Square": ("ben", 20)}
"""Who manages each store, and its share of the orders."""

PRODUCTS = [
    # name, category, price, cost, share; the month of the year in which most are bought
    ("Dome tent", "Camping", 189.0, 104.0, 5, 6),
    ("Trail lantern", "Camping", 34.5, 14.0, 12, 10),
    ("Sleeping bag", "Camping", 94.0, 47.0, 7, 7),
    ("Camp stove", "Camping", 58.0, 27.0, 6, 6),
    ("Rain jacket", "Clothing", 129.0, 56.0, 11, 10),
    ("Wool socks", "Clothing", 14.0, 4.5, 22, 12),
    ("Sun hat", "Clothing", 27.0, 9.0, 9, 7),
    ("Hiking boots", "Footwear", 149.0, 78.0, 9, 9),
    ("Trail shoes", "Footwear", 109.0, 55.0, 10, 5),
    ("Dry bag", "Water", 24.0, 8.0, 9, 7),
    ("Sea kayak", "Water", 899.0, 610.0, 1, 6),
]
REGIONS = ["North", "East", "South", "West"]
FIRST_NAMES = ["Ada", "Bo", "Cleo", "Dara", "Elin", "Finn", "Hana", "Ivo", "Kaya", "Mina", "Noor"]
LAST_NAMES = ["Ash", "Brook", "Cole", "Dale", "Elm", "Field", "Glen", "Heath", "Lake", "Moor"]

Row = Sequence[Any]


def make_customers(random: Random) -> Iterator[Row]:
    """Yield 400 customers."""
    yield "customer_id", "name", "region", "segment", "joined_on"
    for number in range(1, 401):
        name = f"{random.choice(FIRST_NAMES)} {random.choice(LAST_NAMES)}"
        segment = random.choices(["private", "club", "school"], [80, 15, 5])[0]
        joined = FIRST - timedelta(days=random.randrange(900))
        yield number, name, random.choice(REGIONS), segment, joined


def make_orders(random: Random) -> Iterator[Row]:
    """Yield the orders of eighteen months: they grow, and each thing has its season.

    Of the trail lanterns that were sold since February 2026, every fifth came back.
    """
    yield (
        *("order_id", "ordered_at", "store", "manager", "customer_id", "product", "category"),
        *("quantity", "unit_price", "discount", "revenue", "cost", "returned", "delivery_days"),
    )
    number = 10_000
    for day in (FIRST + timedelta(days=n) for n in range(DAYS)):
        growth = 1 + (day - FIRST).days / DAYS / 2
        weekend = 1.5 if day.weekday() > 4 else 1.0
        shares = [share * _season(day, month) for *_, share, month in PRODUCTS]
        for _ in range(round(random.gauss(8 * growth * weekend, 2))):
            number += 1
            yield _make_order(random, number, day, shares)


def _season(day: date, month: int) -> float:
    distance = min((day.month - month) % 12, (month - day.month) % 12)
    return 2.2 - distance * 0.3


def _make_order(random: Random, number: int, day: date, shares: list[float]) -> Row:
    name, category, price, cost, *_ = random.choices(PRODUCTS, shares)[0]
    names = list(STORES)
    store = random.choices(names, [STORES[each][1] for each in names])[0]
    quantity = 1 if price > 80 else random.choices([1, 2, 3, 6], [60, 25, 10, 5])[0]
    discount = random.choices([0.0, 0.1, 0.2, 0.3], [74, 14, 8, 4])[0]
    is_bad = name == "Trail lantern" and day >= date(2026, 2, 1)
    is_shipped = store == "Online"
    at = datetime(day.year, day.month, day.day, random.randrange(8, 22), random.randrange(60))
    return (
        *(number, at, store, STORES[store][0], random.randint(1, 400), name, category),
        *(quantity, price, discount, round(quantity * price * (1 - discount), 2)),
        round(quantity * cost, 2),
        random.random() < (0.21 if is_bad else 0.05 if is_shipped else 0.02),
        max(1, round(random.gauss(3.2, 1.1))) if is_shipped else None,
    )


def make_evaluation(random: Random) -> Iterator[Row]:
    """Yield what judges found of 1,200 answers of two bots. A latency may be missing, as `n/a`.

    The model that came in March 2026 is faster, and less faithful about returns.
    """
    yield (
        *("dataset_id", "query", "source_name", "model", "environment"),
        *("faithfulness_score", "relevance_score", "latency", "tokens", "timestamp"),
    )
    topics = {
        "order_bot": ["Where is my order?", "Can I change the address?", "Is the tent in stock?"],
        "returns_bot": ["How do I return boots?", "When is my refund paid?", "Is this a warranty?"],
    }
    start = datetime(2026, 1, 1)
    for number in range(1, 1_201):
        at = start + timedelta(hours=number * 3.6, minutes=random.randrange(60))
        bot = random.choice(list(topics))
        model = "lark-2" if at >= datetime(2026, 3, 1) else "lark-1"
        faithful = 0.9 if model == "lark-1" else 0.88 if bot == "order_bot" else 0.71
        speed = 1900 if model == "lark-1" else 1150
        yield (
            *(f"e{number:04}", random.choice(topics[bot]), bot, model),
            random.choices(["production", "staging", "dev"], [70, 20, 10])[0],
            round(min(1.0, max(0.0, random.gauss(faithful, 0.08))), 3),
            round(min(1.0, max(0.0, random.gauss(0.86, 0.07))), 3),
            "n/a" if random.random() < 0.04 else str(round(random.gauss(speed, speed / 5))),
            *(round(random.gauss(420, 90)), at.isoformat(sep=" ")),
        )


def make_kpis(random: Random) -> Iterator[Row]:
    """Yield key figures of each month, with their targets."""
    yield "kpi_name", "kpi_category", "month", "kpi_value", "target", "unit"
    months = [date(2025 + n // 12, n % 12 + 1, 1) for n in range(18)]
    for at, month in enumerate(months):
        yield "nps", "customer", month, round(random.gauss(41 + at / 3, 2), 1), 45, "points"
        yield "csat", "customer", month, round(random.gauss(4.3, 0.08), 2), 4.4, "of 5"
        yield "on_time", "delivery", month, round(random.gauss(0.93, 0.015), 3), 0.95, "share"
        yield "stock_days", "stock", month, round(random.gauss(38 - at / 4, 2)), 35, "days"


def write_data(folder: Path) -> None:
    """Write all tables into a folder: the orders as Parquet, the others as CSV."""
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "customers": make_customers(Random(1)),  # noqa: S311
        "orders": make_orders(Random(2)),  # noqa: S311
        "eval_data": make_evaluation(Random(3)),  # noqa: S311
        "kpi_data": make_kpis(Random(4)),  # noqa: S311
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [_write_cell(value) for value in row] for row in rows
            )
    orders = folder / "orders.csv"
    duckdb.sql(f"COPY (FROM '{orders}') TO '{folder / 'orders.parquet'}' (COMPRESSION zstd)")
    orders.unlink()


def _write_cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


if __name__ == "__main__":
    write_data(DATA)
