"""Data sets, files and memory over HTTP, each for whom it belongs to."""

from pathlib import Path

from fastapi import FastAPI
from starlette.testclient import TestClient

from copilot_runtime.adapters.scripted import call, say
from tests.extensions.analyst.http.server import LOCAL, build_runtime, serve
from tests.in_one_test import in_one_test

BOB = {"x-user": "bob"}


def test_data_sets_count_the_rows_that_their_reader_may_see(tmp_path: Path) -> None:
    with serve(tmp_path) as client:
        about = client.get("/graphql/analyst").json()
        one = client.get("/graphql/analyst/datasets/orders").json()
        (listed,) = client.get("/graphql/analyst/datasets").json()["datasets"]
        nobody = client.get("/graphql/analyst/datasets/orders", headers={"x-user": ""}).json()

    assert (about["name"], about["allow_save"]) == ("analyst", True)
    assert (listed["name"], listed["row_count"]) == ("orders", 2)
    city = next(column for column in one["columns"] if column["name"] == "city")
    assert city["values"] == ["Oslo"]
    assert nobody["row_count"] == 0


@in_one_test(
    ("filters", "name"), [({}, "bad"), ({"*": "true"}, "")], ids=("open to all", "with filters")
)
def test_a_source_that_failed_is_named_to_users_who_may_query_all_data(
    filters: dict[str, str], name: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfei\0d\0\0\xd8\n\0")
    data = [str(tmp_path / "orders.csv"), str(tmp_path / "bad.csv")]
    with serve(tmp_path, data=data, row_filters=filters) as client:
        client.get("/graphql/analyst/datasets/orders")
        listed = client.get("/graphql/analyst/datasets").json()

    [problem] = listed["problems"]
    assert (problem["name"], "bad" in problem["problem"]) == (name, bool(name))
    assert listed["progress"] == []


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    sql = "SELECT city, amount FROM orders ORDER BY amount"
    get = call("download_data", {"sql": sql, "format": "csv", "filename": "mine"})
    with serve(tmp_path, get, say("Here it is.")) as client:
        body = client.post("/copilot/chat", json={"message": "Give me a file"}).json()
        url = body["download"]["url"]
        file, stranger = client.get(url), client.get(url, headers=BOB)

    assert file.text.split() == ["city,amount", "Oslo,10", "Oslo,20"]
    assert 'filename="mine.csv"' in file.headers["content-disposition"]
    assert stranger.status_code == 404


def test_charts_and_files_of_a_mounted_application_have_its_prefix(tmp_path: Path) -> None:
    columns = {"chart_type": "bar", "x_column": "city", "y_column": "amount"}
    draw = call("plot_data", {"sql": "SELECT city, amount FROM orders", **columns})
    save = call("download_data", {"sql": "FROM orders", "format": "csv", "filename": "all"})
    outer = FastAPI()
    outer.mount("/api", build_runtime(tmp_path, draw, save, say("Both are below.")).app())
    with TestClient(outer, LOCAL, headers={"x-user": "ann"}, root_path="/proxy") as client:
        question = {"message": "Plot the amounts, and save them"}
        body = client.post("/proxy/api/copilot/chat", json=question).json()
        urls = [body["chart"]["png_url"], body["download"]["url"]]
        codes = [client.get(url).status_code for url in urls]

    assert (codes, [url.rpartition("/")[0] for url in urls]) == (
        [200, 200],
        ["/proxy/api/graphql/analyst/charts", "/proxy/api/graphql/analyst/downloads"],
    )
    assert all(
        url in one["text"] for url, one in zip(urls, (body["chart"], body["download"]), strict=True)
    )


def test_memory_is_read_changed_and_forgotten_by_its_owner(tmp_path: Path) -> None:
    sql = call("run_sql", {"sql": "SELECT avg(amount) FROM orders WHERE city = 'Oslo'"})
    with serve(tmp_path, sql, say("15")) as client:
        client.post("/copilot/chat", json={"message": "Average in Oslo?"})
        url = "/graphql/analyst/memory"
        memories = client.get(url).json()["memories"]
        while not memories:  # it is recorded after the answer
            memories = client.get(url).json()["memories"]
        strange = client.get(url, headers=BOB).json()["memories"]
        first = memories[0]
        pinned = client.patch(f"{url}/{first['id']}", json={"is_pinned": True}).json()
        refused = client.patch(f"{url}/{first['id']}", json={"hits": 3})
        missing = client.delete(f"{url}/{first['id']}", headers=BOB)
        vague = [client.delete(url, params=one).status_code for one in ({"id": "x"}, {"table": ""})]
        kept = client.get(url).json()["memories"]
        client.delete(f"{url}/{first['id']}")
        left = client.get(url).json()["memories"]

    assert strange == []
    assert "Oslo" not in repr(memories)
    assert pinned["is_pinned"] is True
    assert vague == [400, 400] and len(kept) == len(memories)
    assert (refused.status_code, missing.status_code) == (400, 404)
    assert first["id"] not in [one["id"] for one in left]


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with serve(tmp_path) as client:
        paths = ["x", "charts/x.png", "charts/x", "downloads/x", "datasets/x", "memory/x/y"]
        codes = [client.get(f"/graphql/analyst/{path}").status_code for path in paths]
        posted = client.post("/graphql/analyst/datasets")

    assert codes == [404] * len(paths)
    assert posted.status_code == 405


def test_the_routes_are_described_with_what_they_take(tmp_path: Path) -> None:
    with serve(tmp_path) as client:
        paths = client.get("/openapi.json").json()["paths"]

    routes = {path: {*methods} for path, methods in paths.items() if "analyst" in path}
    assert routes == {
        "/graphql/analyst": {"get"},
        "/graphql/analyst/datasets": {"get"},
        "/graphql/analyst/datasets/{dataset}": {"get", "delete"},
        "/graphql/analyst/downloads/{download}": {"get"},
        "/graphql/analyst/charts/{chart}": {"get"},
        "/graphql/analyst/memory": {"get", "delete"},
        "/graphql/analyst/memory/{memory}": {"patch", "delete"},
    }
    for path in ("stream/oai", "stream", "chat"):
        body = paths[f"/graphql/copilot/{path}"]["post"]["requestBody"]
        assert "message" in body["content"]["application/json"]["schema"]["properties"]


def test_the_page_data_is_there_for_whatever_fetches_it(tmp_path: Path) -> None:
    with serve(tmp_path) as client:
        page = client.get("/data", headers={"accept": "*/*"})

    assert (page.status_code, "<title>Data" in page.text) == (200, True)
