"""The operations of an OpenAPI document as tools."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.tools.catalog import ToolResult
from tests.adapters.provider import Provider, whole
from tests.extensions.tools.catalog.conftest import RUN, Write, call_tool
from tests.in_one_test import in_one_test
from tests.yaml_bombs import BOMBS

pytestmark = pytest.mark.anyio

PETS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "pets.yml").read_text())


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "api" / "pets.json"
    path.parent.mkdir()
    path.write_text(json.dumps(PETS))
    return path


def _tool(**openapi: Any) -> str:
    return json.dumps({"tool": {"endpoint": {"openapi": {"document": "api/pets.json", **openapi}}}})


async def test_each_operation_is_a_tool(write: Write, document: Path) -> None:
    actions = {action.name: action for action in await write(_tool()).actions(RUN)}

    assert [*actions] == ["tool_getPet", "tool_put_pets", "tool_addPet", "tool_fill_in"]
    get, add = actions["tool_getPet"], actions["tool_addPet"]
    assert (get.description, get.is_idempotent) == ("Look at a pet.", True)
    assert (add.description, add.is_idempotent) == ("Add a pet.", False)
    assert [*get.parameters["properties"]] == [
        *("petId", "fields", "ids", "filter", "page", "x-trace", "tab", "query_petId"),
    ]
    assert get.parameters["properties"]["petId"] == {"type": "string", "description": "Which."}
    assert get.parameters["required"] == ["petId"]


async def test_the_members_of_a_body_are_parameters(write: Write, document: Path) -> None:
    (action,) = await write(_tool(operations=["addPet"])).actions(RUN)
    assert action.name == "tool"
    pet = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "age": {"type": ["integer", "null"], "exclusiveMinimum": 0},
            "parent": {"$ref": "#/$defs/Pet"},
            "house": {},
            "example": {"type": "string", "default": "x"},
        },
    }
    assert action.parameters == {
        "type": "object",
        "properties": {"body": {"$ref": "#/$defs/Pet"}},
        "required": ["body"],
        "$defs": {"Pet": pet},
    }


async def test_an_operation_is_called(write: Write, document: Path, server: Provider) -> None:
    server.answer([whole({"name": "Rex"})])
    catalog = write(
        _tool(
            operations=["getPet"],
            server=f"{server.url}/v1/",
            headers={"Authorization": "Bearer ${secret:API_KEY}"},
            query={"key": "${secret:API_KEY}"},
        )
    )

    result = await call_tool(
        catalog,
        petId="a/b",
        fields=["x", "y"],
        ids=[1, 2],
        filter={"a": 1},
        page={"n": 2},
        tab="t 1",
        query_petId="q",
        **{"x-trace": {"a": "b"}},
    )

    assert result == ToolResult('{"name":"Rex"}')
    (request,) = server.requests
    assert request.line == (
        "GET /v1/pets/a%2Fb?fields=x&fields=y&ids=1%2C2&filter%5Ba%5D=1&n=2&petId=q"
        "&key=s3cret-key HTTP/1.1"
    )
    assert request.headers["x-trace"] == "a,b"
    assert request.headers["cookie"] == "tab=t%201"
    assert request.headers["authorization"] == "bearer s3cret-key"


async def test_a_body_is_sent(write: Write, document: Path, server: Provider) -> None:
    server.answer([whole({})])
    catalog = write(_tool(server=server.url))

    await call_tool(catalog, "tool_addPet", body={"name": "Rex"})
    await call_tool(catalog, "tool_put_pets")
    await call_tool(catalog, "tool_fill_in", a="b c")

    assert [request.body for request in server.requests] == [{"name": "Rex"}, None, b"a=b+c"]


async def test_an_operation_that_is_not_there_is_an_error_of_the_call(
    write: Write, document: Path
) -> None:
    result = await call_tool(write(_tool()), "tool_getPets")
    assert result.error == (
        "Tool endpoint not found: tool_getPets. There are: tool_getPet, tool_put_pets, "
        "tool_addPet, tool_fill_in."
    )


@in_one_test("pet", ["..", ""])
async def test_an_argument_stays_in_its_place(
    write: Write, document: Path, server: Provider, pet: str
) -> None:
    catalog = write(_tool(server=server.url, operations=["getPet"]))
    assert "is no part of a path" in ((await call_tool(catalog, petId=pet)).error or "")
    result = await call_tool(catalog, petId="1", **{"x-trace": {"a": "1\r\nx: 2"}})
    assert result.error == "Invalid arguments: a header must be one line."
    assert server.requests == []


async def test_responses_can_be_validated_against_the_document(
    write: Write, document: Path, server: Provider
) -> None:
    server.answer([whole({"name": 1})])
    loose = write(_tool(server=server.url, operations=["getPet"]))
    assert await call_tool(loose, petId="1") == ToolResult('{"name":1}')

    strict = write(_tool(server=server.url, operations=["getPet"], checks_results=True))
    assert "name: 1 is not of type 'string'" in ((await call_tool(strict, petId="1")).error or "")


async def test_a_document_may_be_fetched(write: Write, server: Provider) -> None:
    pets = {**PETS, "servers": [{"url": "/api"}]}
    server.answer([whole(pets)], [whole({"name": "Rex"})], [whole(b"")])
    catalog = write(_tool(document=f"{server.url}/docs/pets.json", operations=["getPet"]))

    assert await call_tool(catalog, petId="1") == ToolResult('{"name":"Rex"}')
    assert [request.line for request in server.requests] == [
        "GET /docs/pets.json HTTP/1.1",
        "GET /api/pets/1 HTTP/1.1",
    ]
    (seen,) = await catalog.check(RUN)
    assert (seen.is_reachable, seen.detail) == (True, f"1 operations; {server.url} answers")


async def test_the_operations_are_named_where_tools_are_checked_and_listed(
    write: Write, document: Path, server: Provider
) -> None:
    server.answer([whole(b"")])
    catalog = write(_tool(server=server.url, operations=["getPet", "addPet"]))
    names = "tool_getPet, tool_addPet"

    (seen,) = await catalog.check(RUN)

    assert seen.detail == f"2 operations; {server.url} answers; {names}"
    assert catalog.list_purposes() == {"tool": names}
    alone = write(_tool(server=server.url, operations=["getPet"]))
    assert alone.list_purposes() == {"tool": "Look at a pet."}


async def test_a_fetched_document_names_no_server_elsewhere(write: Write, server: Provider) -> None:
    server.answer([whole(PETS)])
    (seen,) = await write(_tool(document=f"{server.url}/pets.json")).check(RUN)
    assert not seen.is_reachable
    assert "names a server elsewhere: 'https://pets.example'" in seen.detail


async def test_a_document_that_cannot_be_fetched_leaves_the_tool_out(
    write: Write, server: Provider
) -> None:
    server.answer([whole(b"", status="404 Not Found")])
    assert await write(_tool(document=f"{server.url}/pets.json")).actions(RUN) == []


def _edit(document: Path, pets: dict[str, Any]) -> None:
    document.write_text(json.dumps(pets))
    os.utime(document, ns=(1, 1))


async def test_a_document_that_changes_is_read_again(write: Write, document: Path) -> None:
    catalog = write(_tool())
    assert len(await catalog.actions(RUN)) == 4

    _edit(document, {**PETS, "paths": {"/form": PETS["paths"]["/form"]}})

    assert [action.name for action in await catalog.actions(RUN)] == ["tool_fill_in"]


@in_one_test(
    ("text", "message"),
    [
        ('{"swagger": "2.0"}', "is none of OpenAPI 3"),
        ("{", "neither JSON nor YAML"),
        ("a: [", "neither JSON nor YAML"),
        *((bomb, "line 5: aliases (`*name`) repeat more than 100,000 values") for bomb in BOMBS),
        ("openapi: 3.1.0\npaths: {}\nservers: [{url: 'http://a/'}]", "has none of the operations"),
        ("openapi: 3.1.0\npaths: {/a: {get: {}}}", "server of the document '/' is not an address"),
        (
            json.dumps(
                {
                    "openapi": "3.1.0",
                    "servers": [{"url": "http://a/"}],
                    "paths": {f"/{number}": {"get": {}} for number in range(129)},
                }
            ),
            "has 129 such operations; at most 128 are offered",
        ),
    ],
)
def test_a_document_that_cannot_be_used_is_an_error_at_the_start(
    write: Write, document: Path, text: str, message: str
) -> None:
    document.write_text(text)
    with pytest.raises(ConfigurationFailed, match=r"tools\.yml:1") as caught:
        write(_tool())
    assert message in caught.value.message


def test_a_document_that_is_not_there_is_an_error_at_the_start(write: Write) -> None:
    with pytest.raises(ConfigurationFailed, match=r"pets\.json' cannot be read: No such file"):
        write(_tool())
