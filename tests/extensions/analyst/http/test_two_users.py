"""What one person asked is for that person alone, and for all servers of a deployment."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime.adapters.scripted import call, say
from tests.extensions.analyst.http.server import build_runtime, serve
from tests.extensions.analyst.http.test_resources import BOB
from tests.storage.conftest import s3_bucket, s3_server

LOCAL = "http://127.0.0.1:8000"
BASE = "/graphql"

_HEAD = "owner,city,amount,score,day,note,kpi\n"
_ROWS = {
    "ann": "ann,ANNTOWN,551155115{0},0.7{0}1,2031-03-0{1},annsecret{0},ann-kpi{0}\n",
    "bob": "bob,BOBTOWN,992299229{0},0.8{0}1,2042-04-0{1},bobsecret{0},bob-kpi{0}\n",
}
CANARIES = {
    "ann": ("anntown", "551155115", "2031-03-0", "annsecret", "ann-kpi"),
    "bob": ("bobtown", "992299229", "2042-04-0", "bobsecret", "bob-kpi"),
}
"""What is in each one's rows, and nowhere else."""

SQL = (
    "SELECT * FROM orders",
    "SELECT max(amount), min(day), count(*) FROM orders",
    "SELECT CAST(note AS INTEGER) FROM orders",
    "SELECT note::DATE FROM orders WHERE owner <> 'me'",
    "SELECT error(note) FROM orders",
    "SELECT * FROM orders WHERE 1 / (amount - amount) > 0 OR note::INT > 3",
    "WITH orders AS (SELECT * FROM orders) SELECT * FROM orders",
    "SELECT * FROM d1.main.orders",
    "SELECT (SELECT max(o.note) FROM orders o) AS x FROM orders",
    "SELECT * FROM orders a FULL JOIN orders b ON a.owner <> b.owner",
    "FROM orders SELECT list(note)",
    "SUMMARIZE orders",
    "SELECT * FROM (SUMMARIZE orders)",
    "PIVOT orders ON city USING sum(amount)",
    "SELECT note FROM orders USING SAMPLE 100%",
    "SELECT nota FROM orders",
    'SELECT count(*) FROM orders WHERE city = "Nowhere"',
    "SELECT histogram(note), approx_top_k(note, 9), arg_max(note, amount) FROM orders",
    "TABLE orders",
    "SELECT COLUMNS('n.*') FROM orders",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM query_table('orders')",
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("summarize_data", {}),
    ("query_data", {"search_text": "secret", "limit": 50}),
    ("query_data", {"filter_column": "city", "filter_value": "town"}),
    ("query_data", {"find_max_column": "amount", "find_min_column": "day"}),
    ("analyze_data", {}),
    ("analyze_data", {"group_by": ["city", "note"], "metric": "amount", "aggregation": "max"}),
    ("compare_data", {"group_column": "owner", "group_a": "ann", "group_b": "bob"}),
    ("compare_data", {"group_column": "city"}),
    ("query_kpi_data", {}),
    *(("run_sql", {"sql": sql}) for sql in SQL),
    (
        "plot_data",
        {
            "chart_type": "bar",
            "sql": "SELECT note, amount FROM orders",
            "x_column": "note",
            "y_column": "amount",
            "title": "Rows",
        },
    ),
    ("analyze_patterns", {"analysis_type": "all"}),
    ("save_as_dataset", {"name": "mine", "sql": "SELECT * FROM orders", "description": ""}),
    ("download_data", {"sql": "SELECT * FROM orders", "format": "json", "filename": "all"}),
    ("describe_metric_signals", {}),
    ("recall_memory", {}),
)


def _list_urls(value: Any) -> Iterator[str]:
    """Yield what a body names below the URL of the runtime."""
    match value:
        case dict():
            for item in value.values():
                yield from _list_urls(item)
        case list():
            for item in value:
                yield from _list_urls(item)
        case str() if value.startswith(prefix := f"{BASE}/"):
            yield value.removeprefix(prefix)
        case _:
            pass


def _read_lines(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


def _ask(client: TestClient, user: str) -> tuple[str, list[str]]:
    """Ask everything as a user, by every door. Return all that came, and addresses in it."""
    headers = {"x-user": user}
    run = {
        "threadId": f"t-{user}",
        "runId": f"r-{user}",
        "state": {},
        "messages": [{"id": f"m-{user}", "role": "user", "content": "Show all that there is."}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    texts = [
        client.post(f"{BASE}/agent/analyst/run", json=run, headers=headers).text,
        client.post("/copilot/stream", json={"message": "Show all."}, headers=headers).text,
    ]
    urls = [url for text in texts for body in _read_lines(text) for url in _list_urls(body)]
    paths = [
        "analyst",
        "analyst/datasets",
        "analyst/datasets/orders",
        "analyst/memory",
        *dict.fromkeys(urls),
    ]
    for path in paths:
        answer = client.get(f"{BASE}/{path}", headers=headers)
        if not answer.headers["content-type"].startswith("image/png"):
            texts.append(answer.text)
    connect = {**run, "runId": f"again-{user}", "messages": []}
    texts.append(client.post(f"{BASE}/agent/analyst/connect", json=connect, headers=headers).text)
    return "\n".join(texts), urls


def test_no_door_shows_one_person_the_rows_of_another(tmp_path: Path) -> None:
    order = ("ann", "bob")
    rows = "".join(_ROWS[user].format(n, n % 9 + 1) for user in ("ann", "bob") for n in range(12))
    tools = [call(name, given, id=f"c{n}") for n, (name, given) in enumerate(CALLS)]
    again = [*tools[:9], *tools[-6:]]  # the SQL has been asked by then
    answers = [chain.from_iterable(tools), say("Done."), chain.from_iterable(again), say("Done.")]
    answers = [[*turn] for turn in answers]
    runtime = build_runtime(tmp_path, *answers, *answers, approve_saves=False)
    (tmp_path / "orders.csv").write_text(_HEAD + rows)
    with TestClient(runtime.app(), LOCAL) as client:
        found = {user: _ask(client, user) for user in order}
        for user, other in (order, order[::-1]):
            text, urls = found[user]
            assert urls, "nothing was made that another person could try to fetch"
            assert all(canary in text.lower() for canary in CANARIES[user][:2])
            for canary in CANARIES[other]:
                assert canary not in text.lower(), _cut_around(text, canary)
            for url in urls:
                answer = client.get(f"{BASE}/{url}", headers={"x-user": other})
                assert answer.status_code == 404, url
    for request in runtime.adapter.requests:  # pyright: ignore[reportAttributeAccessIssue]
        other = order[1] if request.user == order[0] else order[0]
        seen = repr(request.messages).lower() + request.instructions.lower()
        assert not [canary for canary in CANARIES[other] if canary in seen]


def _cut_around(text: str, canary: str) -> str:
    place = text.lower().index(canary)
    return text[max(0, place - 300) : place + 100]


__all__ = ["s3_bucket", "s3_server"]

AMOUNTS = "SELECT city, amount FROM orders ORDER BY amount"
FILE = call("download_data", {"sql": AMOUNTS, "format": "csv", "filename": "mine"})
CHART = call(
    "plot_data", {"sql": AMOUNTS, "chart_type": "bar", "x_column": "city", "title": "Sold"}
)


@pytest.fixture(params=["local", "s3"])
def servers(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[TestClient, TestClient]]:
    """Serve the same data by two servers, each with a folder of its own."""
    files = f"local:{tmp_path / 'files'}"
    if request.param == "s3":
        bucket, server = (request.getfixturevalue(one) for one in ("s3_bucket", "s3_server"))
        files = f"s3://{bucket}/files?region=us-east-1&endpoint={server}"
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    turns = (FILE, say("Here it is."), CHART, say("Here it is."))
    with (
        serve(folders[0], *turns, files=files) as first,
        serve(folders[1], files=files) as second,
    ):
        for server in (first, second):
            while not server.get("/graphql/analyst/datasets").json()["datasets"]:
                pass  # a server reads its data in the background
        yield first, second


def test_any_server_gives_a_file_and_a_chart_to_their_owner_alone(
    servers: tuple[TestClient, TestClient],
) -> None:
    first, second = servers
    found = first.post("/copilot/chat", json={"message": "Give me a file"}).json()
    file = found["download"]["url"]
    found = first.post("/copilot/chat", json={"message": "Draw it"}).json()
    chart = f"/graphql/analyst/charts/{found['chart']['id']}.json"

    assert second.get(file).text.split() == ["city,amount", "Oslo,10", "Oslo,20"]
    assert second.get(chart).json() == first.get(chart).json()
    assert second.get(chart).json()["title"] == "Sold"
    assert [second.get(url, headers=BOB).status_code for url in (file, chart)] == [404, 404]
    assert second.get("/graphql/analyst/charts/..%2Fx.json").status_code == 404
