"""Tools in GraphQL: operators see and call them, nobody else does."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphql import build_schema, find_breaking_changes
from starlette.testclient import TestClient

from copilot_runtime import ActionContext, CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.transports.graphql.schema import sdl
from tests.extensions.knowledge.library import WordCounter
from tests.extensions.tracing.http.spans import LOCAL, sign_in
from tests.in_one_test import in_one_test

TOOLS = f"""
double:
  purpose: Double a number.
  applicability: Where twice as much is needed.
  instructions: Give a number.
  evaluation: The number, doubled.
  parameters:
    type: object
    properties: {{number: {{type: integer}}, unit: {{type: string}}}}
    required: [number]
  hidden: [unit]
  idempotent: true
  endpoint: {{function: "{__name__}:double"}}
whoami:
  description: Say who calls.
  endpoint: {{function: "{__name__}:whoami"}}
away:
  purpose: Do something elsewhere.
  endpoint: {{mcp: {{server: "http://127.0.0.1:9/mcp"}}}}
"""
LIST = """{ tools {
  name description purpose applicability instructions evaluation parameters endpoint idempotent
  error
} }"""
CALL = """mutation ($name: String!, $arguments: JSON) {
  callTool(name: $name, arguments: $arguments) { content error }
}"""
OPERATORS = {"telemetry": {"operators": ["ann"]}}
REFUSAL = "Tools are for operators of this server."


def double(number: int) -> int:
    return 2 * number


def whoami(context: ActionContext) -> str:
    return f"{context.user} {context.headers.get('x-team')}"


@contextmanager
def serve(
    folder: Path, settings: dict[str, Any] | None = None, **more: Any
) -> Generator[TestClient]:
    (folder / "tools.yml").write_text(TOOLS)
    runtime = CopilotRuntime(
        DemoAdapter(pace=0),
        settings=Settings(threads="memory", tools=str(folder / "tools.yml"), **(settings or {})),
        **more,
    )
    with TestClient(runtime.app(), base_url=LOCAL, client=("127.0.0.1", 50000)) as client:
        yield client


def ask(client: TestClient, query: str, headers: Any = None, /, **variables: Any) -> Any:
    body = {"query": query, "variables": variables}
    return client.post("/graphql", json=body, headers=headers or {}).json()


def call(client: TestClient, name: str, arguments: Any = None, headers: Any = None) -> Any:
    answer = ask(client, CALL, headers, name=name, arguments=arguments)
    return answer["data"]["callTool"] if answer.get("data") else answer["errors"][0]["message"]


def test_tools_are_listed_as_a_model_gets_them(tmp_path: Path) -> None:
    with serve(tmp_path) as client:
        first, second, third = ask(client, LIST)["data"]["tools"]
    assert first == {
        "name": "double",
        "description": "PURPOSE: Double a number.\n\nWHEN TO USE: Where twice as much is needed."
        "\n\nHOW TO USE: Give a number.\n\nRETURNS: The number, doubled.",
        "purpose": "Double a number.",
        "applicability": "Where twice as much is needed.",
        "instructions": "Give a number.",
        "evaluation": "The number, doubled.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
        "endpoint": "function",
        "idempotent": True,
        "error": None,
    }
    assert (second["name"], second["idempotent"]) == ("whoami", False)
    assert (third["name"], third["endpoint"], third["parameters"]) == (
        "away",
        "mcp",
        {"type": "object"},
    )
    assert third["description"] == "PURPOSE: Do something elsewhere."
    assert third["error"]


@in_one_test("arguments", [{"number": 21}, '{"number": 21}'])
def test_a_tool_is_called_with_an_object_or_its_text(tmp_path: Path, arguments: Any) -> None:
    with serve(tmp_path) as client:
        assert call(client, "double", arguments) == {"content": "42", "error": None}


def test_a_call_that_fails_says_why_in_its_result(tmp_path: Path) -> None:
    with serve(tmp_path) as client:
        for name, arguments, sentence in (
            ("double", None, "number"),
            ("double", {"number": "x"}, "number"),
            ("double", "[", "Failed to parse action arguments"),
            ("nothing", {}, "Tool endpoint not found: nothing"),
        ):
            result = call(client, name, arguments)
            assert sentence in result["error"]
            assert result["content"].startswith('{"error":')


def test_a_tool_knows_who_calls_it(tmp_path: Path) -> None:
    headers = {"x-user": "ann", "x-team": "red"}
    with serve(tmp_path, OPERATORS, authenticate=sign_in) as client:
        assert call(client, "whoami", headers=headers)["content"] == "ann red"


@in_one_test("headers", [{}, {"x-user": "bob"}])
def test_others_neither_see_nor_call_tools(tmp_path: Path, headers: Any) -> None:
    with serve(tmp_path, OPERATORS, authenticate=sign_in) as client:
        assert ask(client, LIST, headers)["errors"][0]["message"] == REFUSAL
        assert call(client, "double", {"number": 1}, headers) == REFUSAL


@in_one_test(
    "headers",
    [
        {"x-forwarded-for": "203.0.113.1"},
        {"sec-fetch-site": "cross-site", "origin": "http://localhost:3000"},
        {"origin": "http://localhost:3000"},
    ],
)
def test_without_authentication_only_this_machine_calls_tools(tmp_path: Path, headers: Any) -> None:
    with serve(tmp_path) as client:
        assert call(client, "double", {"number": 1}, headers) == REFUSAL


def test_a_policy_keeps_a_tool_from_an_operator_too(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yml"
    policy.write_text(
        "default: allow\nrules: [{deny: read, users: ann, resources: tool.ToolFunction.double}]"
    )
    knowledge = Knowledge(
        MemoryStorage(), settings=KnowledgeSettings(), embedder=WordCounter(), policy=policy
    )
    headers = {"x-user": "ann"}
    with serve(tmp_path, OPERATORS, authenticate=sign_in, knowledge=knowledge) as client:
        tools = ask(client, "{ tools { name } }", headers)["data"]["tools"]
        result = call(client, "double", {"number": 1}, headers)
    assert [tool["name"] for tool in tools] == ["whoami", "away"]
    assert result["error"] == "Tool endpoint not found: double"


def test_a_page_cannot_call_a_tool_by_a_link(tmp_path: Path) -> None:
    query = 'mutation { callTool(name: "double", arguments: {number: 1}) { content } }'
    with serve(tmp_path) as client:
        assert client.get("/graphql", params={"query": query}).status_code == 405


def test_a_request_may_ask_for_tools_a_few_times(tmp_path: Path) -> None:
    query = " ".join(f"a{at}: tools {{ name }}" for at in range(6))
    with serve(tmp_path) as client:
        answer = ask(client, f"{{ {query} }}")
    assert answer["errors"][0]["message"] == "A request may ask for 5 fields of tools."


def test_a_runtime_without_tools_or_operators_has_no_such_fields(tmp_path: Path) -> None:
    with serve(tmp_path, authenticate=sign_in) as client:
        assert "Cannot query field 'tools'" in str(ask(client, LIST))
    runtime = CopilotRuntime(DemoAdapter(), settings=Settings(threads="memory"))
    with TestClient(runtime.app(), base_url=LOCAL, client=("127.0.0.1", 50000)) as client:
        assert "Cannot query field 'callTool'" in str(ask(client, CALL, name="double"))


def test_tools_only_add_to_the_schema() -> None:
    before, after = build_schema(sdl()), build_schema(sdl(tools=True))
    assert find_breaking_changes(before, after) == []
