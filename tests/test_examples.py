from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

EXAMPLES = Path(__file__).parent.parent / "examples"

ASK = """
mutation generateCopilotResponse($data: GenerateCopilotResponseInput!, $properties: JSONObject) {
  generateCopilotResponse(data: $data, properties: $properties) {
    status { ... on BaseResponseStatus { code } }
    messages {
      ... on TextMessageOutput { content }
      ... on ActionExecutionMessageOutput { name }
      ... on ResultMessageOutput { result }
    }
  }
}
"""


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("EXAMPLE_TOKEN", "open-sesame")


def app_of(example: str) -> TestClient:
    spec = spec_from_file_location(f"example_{example}", EXAMPLES / example / "app.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return TestClient(module.app)


def ask(
    client: TestClient,
    text: str,
    *,
    path: str = "/graphql",
    properties: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    message = {
        "id": "m1",
        "createdAt": "2026-01-01T00:00:00Z",
        "textMessage": {"role": "user", "content": text},
    }
    data: dict[str, Any] = {
        "messages": [message],
        "frontend": {"actions": []},
        "metadata": {"requestType": "Chat"},
    }
    answer = client.post(
        path,
        json={"query": ASK, "variables": {"data": data, "properties": properties or {}}},
        headers=headers or {},
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert "errors" not in body, body
    assert body["data"]["generateCopilotResponse"]["status"] == {"code": "Success"}
    return body["data"]["generateCopilotResponse"]["messages"]


@pytest.mark.parametrize("example", ["hello", "actions", "mounted"])
def test_an_example_without_a_key_says_that_the_demo_model_answers(
    example: str, capsys: pytest.CaptureFixture[str]
):
    app_of(example)

    assert "not a language model" in capsys.readouterr().out


def test_hello_thinks_and_serves_a_page():
    with app_of("hello") as client:
        [text] = ask(client, "think")

        assert "".join(text["content"]) == "I have thought about it. (I cannot really think.)"
        assert 'data-endpoint="/graphql"' in client.get("/").text


def test_actions_runs_two_calls_of_one_turn_and_keeps_their_order():
    with app_of("actions") as client:
        messages = ask(client, "weather in Oslo and open the vault")

    assert [message["name"] for message in messages if "name" in message] == [
        "get_weather",
        "open_vault",
    ]
    weather, vault = [message["result"] for message in messages if "result" in message]
    assert '"city":"Oslo"' in weather.replace(" ", "")
    assert "The vault stays closed at night." in vault


def test_actions_fills_a_pydantic_model():
    with app_of("actions") as client:
        messages = ask(client, "book a table for 2 people on 2030-05-01")

    assert messages[-1] == {"result": "A table for 2 on 2030-05-01 is booked."}


def test_actions_offers_some_to_administrators_only():
    with app_of("actions") as client:
        assert "name" not in ask(client, "reset everything")[0]
        messages = ask(client, "reset everything", properties={"role": "admin"})

    assert messages == [{"name": "reset_everything"}, {"result": "Everything is as new."}]


def test_mounted_lets_nobody_in_without_the_token():
    with app_of("mounted") as client:
        assert client.get("/hello").status_code == 200
        assert client.post("/api/copilotkit", json={"query": "{hello}"}).status_code == 401
        wrong = {"authorization": "Bearer pst"}
        assert client.post("/api/copilotkit", json={}, headers=wrong).status_code == 401


def test_mounted_answers_with_the_token():
    with app_of("mounted") as client:
        token = {"authorization": "Bearer open-sesame"}

        assert ask(client, "think", path="/api/copilotkit", headers=token)
