"""The data analyst in GraphQL: each tool is a field, as the caller, with what it found."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from graphql import build_schema, find_breaking_changes
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.analyst.graphql import name_field
from copilot_runtime.extensions.analyst.tools.call import TOOLS
from copilot_runtime.testing import ScriptedAdapter
from copilot_runtime.transports.graphql.schema import sdl
from tests.extensions.tracing.http.spans import sign_in

ROWS = "owner,region,total\nann,north,20\nann,south,12\nbob,north,8\n"


@contextmanager
def asking(folder: Path, **options: Any) -> Generator[Any]:
    (folder / "sales.csv").write_text(ROWS)
    analyst: Any = {
        "name": "analyst",
        "data": [str(folder / "sales.csv")],
        "store": str(folder / "store"),
        "folder": str(folder / "config"),
        "row_filters": {"sales": "owner = $user"},
    }
    settings = Settings(threads="memory", analyst=analyst)
    runtime = CopilotRuntime(ScriptedAdapter(), settings=settings, authenticate=sign_in)
    with TestClient(runtime.app(console=False)) as client:

        def ask(query: str, user: str = "ann") -> Any:
            headers = {"x-user": user}
            answer = client.post("/graphql", json={"query": query}, headers=headers).json()
            return answer.get("errors") or answer["data"]["analyst"]

        yield ask


def test_a_schema_without_an_analyst_has_no_field_of_it() -> None:
    with_analyst = build_schema(sdl(analyst=True))
    plain = build_schema(sdl())

    assert "analyst" not in sdl()
    assert find_breaking_changes(plain, with_analyst) == []


def test_each_tool_is_a_field_with_its_own_arguments() -> None:
    schema = build_schema(sdl(analyst=True))
    fields: Any = {
        **schema.type_map["Analyst"].fields,  # pyright: ignore[reportAttributeAccessIssue]
        **schema.type_map["AnalystChanges"].fields,  # pyright: ignore[reportAttributeAccessIssue]
    }

    assert fields.keys() - {"datasets"} == {name_field(name) for name in TOOLS}
    for name, tool in TOOLS.items():
        own = {name_field(one) for one in tool.arguments.model_fields}
        assert own <= fields[name_field(name)].args.keys()
        assert fields[name_field(name)].description == tool.description


def test_a_tool_reads_the_rows_of_who_asks(tmp_path: Path) -> None:
    query = """{ analyst {
      datasets { name rows columns { name } }
      runSql(sql: "SELECT sum(total) AS t FROM sales") {
        error table { columns { name } rows totalRows } lineage { trust tables } }
    } }"""
    with asking(tmp_path) as ask:
        ann, bob = ask(query), ask(query, "bob")

    assert ann == {
        "datasets": [
            {
                "name": "sales",
                "rows": 2,
                "columns": [{"name": "owner"}, {"name": "region"}, {"name": "total"}],
            }
        ],
        "runSql": {
            "error": None,
            "table": {"columns": [{"name": "t"}], "rows": [[32]], "totalRows": 1},
            "lineage": {"trust": "free_sql", "tables": ["sales"]},
        },
    }
    assert bob["datasets"][0]["rows"] == 1
    assert bob["runSql"]["table"]["rows"] == [[8]]


def test_what_is_refused_is_an_error_of_the_tool(tmp_path: Path) -> None:
    with asking(tmp_path) as ask:
        found = ask(
            '{ analyst { runSql(sql: "DROP TABLE sales") { error output table { rows } } } }'
        )

    assert found["runSql"]["error"]
    assert found["runSql"]["output"]["code"] == "not_select"
    assert found["runSql"]["table"] is None


def test_a_result_is_saved_once_a_person_agrees(tmp_path: Path) -> None:
    call = """mutation {{ analyst {{ saveAsDataset(name: "north", description: "",
      sql: "SELECT * FROM sales WHERE region = 'north'"{more}) {{ error approval output }} }} }}"""
    with asking(tmp_path) as ask:
        before = ask(call.format(more=""))["saveAsDataset"]
        after = ask(call.format(more=", approved: true"))["saveAsDataset"]
        names = [one["name"] for one in ask("{ analyst { datasets { name } } }")["datasets"]]
        others = [
            one["name"] for one in ask("{ analyst { datasets { name } } }", "bob")["datasets"]
        ]

    assert before["approval"]
    assert (after["approval"], after["error"], after["output"]["row_count"]) == (None, None, 1)
    assert (len(names), others) == (2, ["sales"])


@pytest.mark.parametrize("count", [11])
def test_a_request_asks_for_a_few_fields(tmp_path: Path, count: int) -> None:
    fields = " ".join(f"a{n}: summarizeData {{ error }}" for n in range(count))
    with asking(tmp_path) as ask:
        errors = ask(f"{{ analyst {{ {fields} }} }}")

    assert "10 fields" in errors[0]["message"]
