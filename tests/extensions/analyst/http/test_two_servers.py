"""Charts and files that one server made, fetched at another one that shares their storage."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from copilot_runtime.adapters.scripted import call, say
from tests.extensions.analyst.http.server import serve
from tests.extensions.analyst.http.test_resources import BOB
from tests.storage.conftest import s3_bucket, s3_server

__all__ = ["s3_bucket", "s3_server"]

SQL = "SELECT city, amount FROM orders ORDER BY amount"
FILE = call("download_data", {"sql": SQL, "format": "csv", "filename": "mine"})
CHART = call("plot_data", {"sql": SQL, "chart_type": "bar", "x_column": "city", "title": "Sold"})


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
        yield first, second


def test_any_server_gives_a_file_and_a_chart_to_their_owner_alone(
    servers: tuple[TestClient, TestClient],
) -> None:
    first, second = servers
    found = first.post("/copilot/chat", json={"message": "Give me a file"}).json()
    file = f"/graphql/{found['download']['url']}"
    found = first.post("/copilot/chat", json={"message": "Draw it"}).json()
    chart = f"/graphql/analyst/charts/{found['chart']['id']}.json"

    assert second.get(file).text.split() == ["city,amount", "Oslo,10", "Oslo,20"]
    assert second.get(chart).json() == first.get(chart).json()
    assert second.get(chart).json()["title"] == "Sold"
    assert [second.get(url, headers=BOB).status_code for url in (file, chart)] == [404, 404]
    assert second.get("/graphql/analyst/charts/..%2Fx.json").status_code == 404
