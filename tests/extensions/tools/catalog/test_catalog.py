"""A catalog of tools: what the model reads, what a call does, and how files may change."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api import Action
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.tools.catalog import ToolCatalog, ToolResult
from copilot_runtime.testing import Client, ScriptedAdapter, ToolCall, call, say
from tests.extensions.tools.catalog import functions
from tests.extensions.tools.catalog.conftest import CONTEXT, RUN, Write, call_tool
from tests.in_one_test import in_one_test
from tests.yaml_bombs import BOMBS

pytestmark = pytest.mark.anyio

FUNCTIONS = "tests.extensions.tools.catalog.functions"


@pytest.fixture(autouse=True)
def calls() -> Iterator[list[dict[str, Any]]]:
    functions.CALLS.clear()
    yield functions.CALLS


def _tool(function: str, **fields: Any) -> str:
    """Return a file with one tool that calls a function of the tests."""
    body: Mapping[str, Any] = {"endpoint": {"function": f"{FUNCTIONS}:{function}"}, **fields}
    return orjson.dumps({"tool": body}).decode()


async def test_the_model_reads_the_words_of_the_file_and_the_signature(write: Write) -> None:
    catalog = write(
        _tool(
            "greet",
            purpose="Greet.",
            parameters={"name": "Whom.", "greeting": {"enum": ["Hi", "Hello"]}, "none": "x"},
            hidden=["punctuation"],
            timeout=3,
            idempotent=True,
        )
    )

    (action,) = await catalog.actions(RUN)

    assert action == Action(
        name="tool",
        description="PURPOSE: Greet.",
        parameters={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Whom."},
                "greeting": {
                    "type": "string",
                    "description": "The first word.",
                    "default": "Hello",
                    "enum": ["Hi", "Hello"],
                },
            },
            "required": ["name"],
        },
        run=action.run,
        timeout=3,
        is_idempotent=True,
    )


async def test_without_words_the_function_describes_the_tool(write: Write) -> None:
    (action,) = await write(_tool("greet")).actions(RUN)
    assert action.description == "Greet somebody."


async def test_the_schema_of_the_file_takes_the_place_of_that_of_the_function(
    write: Write,
) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    (action,) = await write(_tool("greet", parameters=schema)).actions(RUN)
    assert action.parameters == schema


async def test_a_default_of_the_file_replaces_that_of_the_function(
    write: Write, calls: list[dict[str, Any]]
) -> None:
    await call_tool(write(_tool("greet", parameters={"greeting": {"default": "Ciao"}})), name="Ann")
    await call_tool(write(_tool("greet", parameters={"greeting": "A word."})), name="Ann")

    assert [call["greeting"] for call in calls] == ["Ciao", "Hello"]


async def test_a_fixed_argument_takes_the_place_of_the_models(
    write: Write, calls: list[dict[str, Any]]
) -> None:
    catalog = write(_tool("greet", arguments={"greeting": "Ciao"}, hidden=["punctuation"]))

    result = await call_tool(catalog, name="Ann", greeting="Hi", punctuation="?")

    assert result == ToolResult("Ciao, Ann!")
    assert calls == [{"name": "Ann", "greeting": "Ciao"}]


@in_one_test(
    ("reference", "value"),
    [
        ("${CITY}", "Rome"),
        ("${NOBODY:-nobody}", "nobody"),
        ("$${CITY}", "${CITY}"),
        ("${caller:user} of ${property:tenant}", "ann of acme"),
        ("${header:Authorization}", "Bearer 1"),
    ],
)
async def test_a_fixed_argument_may_refer_to_something(
    write: Write, reference: str, value: str
) -> None:
    catalog = write(_tool("tell_caller", arguments={"user": reference}))
    assert await call_tool(catalog, user="eve") == ToolResult(value)


async def test_what_the_model_writes_is_no_reference(write: Write) -> None:
    assert await call_tool(write(_tool("greet")), name="${secret:API_KEY}") == ToolResult(
        "Hello, ${secret:API_KEY}!"
    )


async def test_a_request_that_lacks_what_is_needed_is_an_error_of_the_call(
    write: Write,
) -> None:
    result = await call_tool(
        write(_tool("greet", arguments={"greeting": "${property:lang}"})), name="A"
    )
    assert result.error == "This needs the property 'lang', which is not there."


async def test_a_secret_is_in_no_result(write: Write) -> None:
    catalog = write(_tool("greet", arguments={"greeting": "${secret:API_KEY}"}))
    assert await call_tool(catalog, name="Ann") == ToolResult("***, Ann!")


async def test_a_secret_is_in_no_result_of_json(write: Write, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/DOOR").write_text('open "sesame"')
    catalog = write(_tool("give", arguments={"value": {"door": "${secret:DOOR}"}}))
    assert await call_tool(catalog) == ToolResult('{"door":"***"}')


async def test_a_secret_is_in_no_error(write: Write) -> None:
    catalog = write(_tool("fail", arguments={"secret": "${secret:API_KEY}"}))
    assert (await call_tool(catalog)).error == "Nobody answers to ***."


async def test_a_secret_may_be_a_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/DOOR").write_text("open sesame\n")
    catalog = write(_tool("greet", arguments={"name": "${secret:DOOR}"}))

    assert await call_tool(catalog) == ToolResult("Hello, ***!")
    assert functions.CALLS[0]["name"] == "open sesame"


@in_one_test(
    ("text", "message"),
    [
        ("${secret:NONE}", "The secret 'NONE' is not set."),
        ("${NONE}", "The environment variable 'NONE' is not set."),
        ("${magic:NONE}", "'${magic:NONE}' names nothing that there is."),
    ],
)
def test_a_reference_to_nothing_is_an_error_at_the_start(
    write: Write, text: str, message: str
) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        write(_tool("greet", arguments={"greeting": [text]}))
    assert f"tools.yml:1: the tool 'tool': {message}" in caught.value.message


@in_one_test(
    ("target", "message"),
    [
        (f"{FUNCTIONS}:nothing", f"The module '{FUNCTIONS}' has no 'nothing'."),
        ("no_such_module:x", "No module named 'no_such_module'."),
        (f"{FUNCTIONS}:CALLS", "An action is a function"),
    ],
)
def test_a_function_that_is_not_there_is_an_error_at_the_start(
    write: Write, target: str, message: str
) -> None:
    with pytest.raises(ConfigurationFailed, match=r"tools\.yml:1") as caught:
        write(f"tool: {{endpoint: {{function: '{target}'}}}}")
    assert message in caught.value.message


@in_one_test("code", ["raise SystemExit(3)", "import no_such_package", "1 / 0"])
def test_a_module_that_cannot_be_imported_is_an_error_at_the_start(
    write: Write, tmp_path: Path, code: str
) -> None:
    name = f"broken_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    with pytest.raises(ConfigurationFailed, match=r"tools\.yml:1"):
        write(f"tool: {{endpoint: {{function: '{name}:x'}}}}")


async def test_a_function_may_stand_beside_the_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "beside_tools.py").write_text("def f() -> int:\n    return 7\n")
    assert await call_tool(write("tool: {endpoint: {function: 'beside_tools:f'}}")) == ToolResult(
        "7"
    )


async def test_wrong_arguments_are_an_error_for_the_model(write: Write) -> None:
    error = (await call_tool(write(_tool("greet")), nam="Ann")).error
    assert error is not None
    assert "nam: there is no such argument" in error


async def test_a_result_that_is_too_long_is_an_error_of_the_call(write: Write) -> None:
    catalog = write(_tool("write_much", max_result=100))

    assert (await call_tool(catalog, size=101)).error == (
        "The result of 'tool' has 101 bytes; at most 100 are taken. Ask for less."
    )
    assert await call_tool(catalog, size=100) == ToolResult("x" * 100)


async def test_a_result_that_is_not_what_its_schema_says_is_an_error_of_the_call(
    write: Write,
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    catalog = write(_tool("give", returns=schema))

    assert await call_tool(catalog, value={"n": 1}) == ToolResult('{"n":1}')
    assert (await call_tool(catalog, value={"n": "one"})).error == (
        "The tool 'tool' gave something else than its schema says: n: 'one' is not of type "
        "'integer'."
    )


async def test_a_schema_of_results_that_is_none_is_an_error_of_the_call(write: Write) -> None:
    catalog = write(_tool("give", returns={"type": "strange"}))
    assert "cannot be checked" in ((await call_tool(catalog, value={})).error or "")


async def test_identifiers_are_read_as_the_caller_may(write: Write) -> None:
    catalog = write(_tool("find_documents", **{"as": "identifiers"}))
    assert await call_tool(catalog) == ToolResult(
        "common.Document.d1 for ann\n\ncommon.Document.d2 for ann"
    )


async def test_no_identifiers_are_no_results(write: Write) -> None:
    catalog = write(_tool("find_nothing", **{"as": "identifiers"}))
    assert await call_tool(catalog) == ToolResult("No results found.")


@in_one_test("value", [{"identifiers": "d1"}, {"identifiers": [{"type": "x"}]}, {}])
async def test_what_is_no_identifier_is_an_error_of_the_call(
    write: Write, value: dict[str, Any]
) -> None:
    catalog = write(_tool("give", **{"as": "identifiers"}))
    assert "identifiers must be a list of URIs" in (
        (await call_tool(catalog, value=value)).error or ""
    )


async def test_identifiers_name_resources_in_all_their_forms(write: Write) -> None:
    catalog = write(_tool("give", **{"as": "identifiers"}))
    identifiers = [
        "common.Document.d1",
        {"uri": "common.Document.d2"},
        {"type": "common.Message", "name": "m", "parent": "common.Conversation.c"},
    ]
    result = await call_tool(catalog, value={"identifiers": identifiers})
    assert result.content.split("\n\n") == [
        "common.Document.d1 for ann",
        "common.Document.d2 for ann",
        "common.Conversation.c/common.Message.m for ann",
    ]


async def test_content_is_what_is_read_of_an_answer(write: Write) -> None:
    catalog = write(_tool("give", **{"as": "content"}))
    assert await call_tool(catalog, value={"content": "Hi", "more": 1}) == ToolResult("Hi")


async def test_what_failed_on_the_way_is_called_again_if_that_does_no_harm(
    write: Write, calls: list[dict[str, Any]]
) -> None:
    assert await call_tool(write(_tool("fail_once"))) == ToolResult("call 2")
    assert len(calls) == 2


@pytest.mark.parametrize("fields", [{"idempotent": False}, {"retries": 0}])
async def test_what_may_do_harm_is_called_once(
    write: Write, calls: list[dict[str, Any]], fields: dict[str, Any]
) -> None:
    assert (await call_tool(write(_tool("fail_once", **fields)))).error == "Come again."
    assert len(calls) == 1


@in_one_test(
    ("request_fields", "message"),
    [
        ({}, "Invalid tool request: missing id or function"),
        ({"function": {"arguments": "{}"}}, "Invalid tool request: missing id or function"),
        ({"function": {"name": "none", "arguments": "{}"}}, "Tool endpoint not found: none"),
        ({"function": {"name": "tool"}}, "Missing function arguments"),
        ({"function": {"name": "tool", "arguments": "{"}}, "Failed to parse action arguments"),
    ],
)
async def test_a_request_that_cannot_be_answered_is_a_result(
    write: Write, request_fields: dict[str, Any], message: str
) -> None:
    result = await write(_tool("greet")).call_request(request_fields, CONTEXT)
    assert result.error == message
    assert orjson.loads(result.content) == {"error": message}


async def test_a_request_is_answered(write: Write) -> None:
    request = {"function": {"name": "tool", "arguments": '{"name": "Ann"}'}}
    result = await write(_tool("greet")).call_request(request, CONTEXT)
    assert result == ToolResult("Hello, Ann!")


async def test_a_tool_that_can_never_work_answers_with_why(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("tool: {endpoint: {function: 'no_such_module:x'}}")
    catalog = ToolCatalog(path)
    catalog.load(is_strict=False)

    request = {"function": {"name": "tool", "arguments": "{}"}}
    result = await catalog.call_request(request, CONTEXT)

    assert "No module named 'no_such_module'." in (result.error or "")
    assert "No module named" in ((await catalog.call("tool", "{}", CONTEXT)).error or "")


def test_a_folder_has_the_tools_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(_tool("greet"))
    (tmp_path / "b.yaml").write_text(_tool("greet").replace('"tool"', '"other"'))
    (tmp_path / "c.txt").write_text("nothing")
    catalog = ToolCatalog(tmp_path)
    catalog.load()
    assert [*catalog.definitions] == ["tool", "other"]


def test_two_tools_of_one_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(_tool("greet"))
    (tmp_path / "b.yml").write_text(_tool("greet"))
    with pytest.raises(ConfigurationFailed, match=r"b\.yml:1: .*a\.yml:1 has a tool 'tool', too"):
        ToolCatalog(tmp_path).load()


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match="There is no file or folder of tools"):
        ToolCatalog(tmp_path / "none.yml").load()


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationFailed, match=r"a\.yml:1: it is not UTF-8 text"):
        ToolCatalog(tmp_path).load()


def _edit(catalog: ToolCatalog, text: str) -> None:
    """Change the file, so that the next run sees it."""
    catalog.path.write_text(text, encoding="utf-8")
    os.utime(catalog.path, ns=(1, len(text)))


async def test_a_file_that_changes_is_read_again(write: Write) -> None:
    catalog = write(_tool("greet"))
    assert [action.name for action in await catalog.actions(RUN)] == ["tool"]

    _edit(catalog, _tool("greet").replace('"tool"', '"welcome"'))

    assert [action.name for action in await catalog.actions(RUN)] == ["welcome"]


async def test_a_file_that_is_broken_later_leaves_the_tools_as_they_were(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = write(_tool("greet"))

    for text in ("tool: [", *BOMBS, "tool: {endpoint: {function: 'no_such_module:x'}}"):
        _edit(catalog, text)
        assert [action.name for action in await catalog.actions(RUN)] == ["tool"]

    assert "tools.yml:1: not YAML" in caplog.text
    assert caplog.text.count("tools.yml:5: aliases (`*name`) repeat more than 100,000") == 2
    assert "No module named 'no_such_module'" in caplog.text


async def test_each_mistake_of_a_broken_file_is_a_line_and_so_is_its_repair(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "copilot_runtime.config.file_watcher")
    catalog = write(_tool("greet"))

    _edit(catalog, "a: {purpse: x}\nb: {purpse: x}")
    await catalog.actions(RUN)
    mistakes = [*caplog.messages]
    caplog.clear()
    _edit(catalog, _tool("greet"))
    await catalog.actions(RUN)
    _edit(catalog, f"{_tool('greet')[:-1]}, {_tool('greet').replace('tool', 'two', 1)[1:]}")
    await catalog.actions(RUN)

    start = f"The tools stay as they were: {catalog.path}:"
    assert len(mistakes) > 1
    assert all(it.startswith(start) and "\n" not in it for it in mistakes)
    assert caplog.messages == ["1 tool was read again.", "2 tools were read again."]


async def test_the_actions_are_listed_once_for_all_runs(write: Write) -> None:
    catalog = write(_tool("greet"))
    assert await catalog.actions(RUN) is await catalog.actions(RUN)


async def test_each_endpoint_says_whether_it_can_be_called(write: Write) -> None:
    (seen,) = await write(_tool("greet")).check(RUN)
    assert (seen.tool, seen.kind, seen.is_reachable, seen.detail) == (
        "tool",
        "function",
        True,
        "imported",
    )


async def test_a_runtime_offers_the_tools_of_its_settings(write: Write) -> None:
    path = write(_tool("greet")).path
    model = ScriptedAdapter(call("tool", {"name": "Ann"}), say("I greeted Ann."))
    runtime = CopilotRuntime(model, settings=Settings(threads="memory", tools=str(path)))

    async with Client(runtime) as client:
        chat = await client.say("Greet Ann.")

    assert chat.tool_calls == [ToolCall("tool", {"name": "Ann"}, "Hello, Ann!")]


def test_a_mistake_keeps_a_runtime_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tools.yml").write_text("tool: {}")
    settings = Settings(threads="memory", tools=str(tmp_path))
    with pytest.raises(ConfigurationFailed, match=r"tools\.yml:1: tool: it calls nothing"):
        CopilotRuntime(ScriptedAdapter(), settings=settings)


async def test_a_tool_may_name_resources_of_knowledge(write: Write) -> None:
    path = write(_tool("find_documents", **{"as": "identifiers"})).path
    settings = Settings(
        threads="memory", tools=str(path), knowledge=KnowledgeSettings(storage="memory")
    )
    runtime = CopilotRuntime(
        ScriptedAdapter(call("tool", {}), say("There are roses.")), settings=settings
    )

    async with Client(runtime) as client:
        document = Resource(Identifier("common.Document", "d2"), "Roses.")
        await runtime.get(Knowledge).resources.put(document)
        chat = await client.say("What is there?")

    assert chat.tool_calls[0].result == "Roses."
