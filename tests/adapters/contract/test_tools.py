"""Tools that a provider would refuse: each adapter adapts them, or leaves that one out."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, McpServer, Settings
from copilot_runtime.adapters.toolset.rules import COMMON, TOOL_RULES
from copilot_runtime.api import Action
from copilot_runtime.api.messages import ActionExecutionMessage
from copilot_runtime.base.errors import Misuse, ToolsRefused
from copilot_runtime.testing import Client
from tests.adapters.asking import HELLO, SET_COLOR, answer, asking, calls_in, failure, text_in
from tests.adapters.contract.fakes import (
    Asked,
    CallArgs,
    CallEnd,
    CallStart,
    Fails,
    Fake,
    Say,
    Stop,
    needs,
)
from tests.extensions.mcp.client import bare
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

TEXT: Json = {"type": "string"}
URL: Json = {"type": "object", "properties": {"url": TEXT}, "required": ["url"]}
BODY: Json = {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


ADAPTED: dict[str, Json] = {
    "array_without_items": of(tags={"type": "array"}, more=of(rows={"type": ["array", "null"]})),
    "combinator_at_the_root": {"type": "object", "anyOf": [URL, BODY]},
    "reference_at_the_root": {
        "type": "object",
        "$ref": "#/definitions/Url",
        "definitions": {"Url": URL},
    },
    "flag_of_draft_4": of(size={"type": "number", "minimum": 0, "exclusiveMinimum": True}),
    "flag_of_draft_3": of(q={"type": "string", "required": True}),
    "tuple": of(at={"type": "array", "items": [{"type": "number"}, {"type": "number"}]}),
    "type_of_a_language": of(n={"type": "int"}, x={"type": "any"}, s={"type": "str"}),
    "null_for_a_keyword": of(q={"type": "string", "description": None, "pattern": None}),
}
LEFT_OUT: dict[str, Json] = {
    "no_object_at_the_root": {"type": "object", "oneOf": [TEXT, {"type": "null"}]},
    "reference_to_nothing": of(q={"$ref": "#/$defs/Lost"}),
}
BAD = {**ADAPTED, **LEFT_OUT}
NO_MCP: dict[str, Json] = {
    "root_that_may_be_null": {**URL, "type": ["object", "null"]},
    "root_without_a_type": {"properties": {"q": TEXT}},
    "reference_alone": {"$ref": "#/$defs/Url", "$defs": {"Url": URL}},
    "flag_of_all": {"oneOf": [URL, BODY], "description": "One of them."},
}
"""Bad schemas that no MCP server may have: those of pages, files and programs."""


async def offered(fake: Fake, *actions: Action, **options: Any) -> Asked:
    """Return what the provider is asked; it refuses a tool that breaks its rules."""
    fake.plays(Say("Hi"), Stop())
    assert text_in(await answer(fake, replace(asking(), actions=actions), **options)) == "Hi"
    return fake.asked[-1]


async def schema_of(fake: Fake, parameters: Any) -> Any:
    (tool,) = (await offered(fake, Action(name="look", parameters=parameters))).tools
    return tool.parameters


async def test_ten_bad_tools_of_150_cost_nobody_an_answer(
    fake: Fake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schemas: dict[str, Json] = {}
    for name, schema in BAD.items():
        schemas |= {f"good_{len(schemas) + n}": URL for n in range(14)} | {name: schema}
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([[{"name": n, "inputSchema": s} for n, s in schemas.items()]]))
    server = McpServer(command=bare.COMMAND, env={"TOOLS": str(listed)}, name="shop")
    fake.plays(Say("Fine."), Stop())

    runtime = CopilotRuntime(
        fake.adapter(), mcp_servers=[server], settings=Settings(threads="memory")
    )
    with caplog.at_level(logging.WARNING):
        async with Client(runtime) as client:
            texts = [(await client.say("Hello")).text for _ in range(2)]
            failing = runtime.find_failing_checks()

    assert texts == ["Fine.", "Fine."]
    warnings = [record.getMessage() for record in caplog.records if record.name.endswith("toolset")]
    single = [one for one in warnings if one.startswith("The tool ")]
    assert [name for name in schemas if any(f"{name!r} of 'shop'" in one for one in single)] == [
        name for name in schemas if name in BAD
    ]
    assert len(single) == 10
    names = [tool.name for tool in fake.asked[0].tools]
    # without two of the server, and with two for the state of the page
    assert len(names) == min(TOOL_RULES.get(fake.name, COMMON).max_tools or 150, 150)
    assert not {*LEFT_OUT} & {*names}
    assert [name for name in LEFT_OUT if any(name in one for one in failing)] == [*LEFT_OUT]


async def test_a_repaired_schema_is_offered(fake: Fake) -> None:
    needs(fake, "calls")
    for name, schema in {**ADAPTED, **NO_MCP}.items():
        sent = await offered(fake, SET_COLOR, Action(name=name, parameters=schema))
        assert [tool.name for tool in sent.tools] == ["setColor", name]


async def test_alternatives_at_the_root_are_told_in_words(fake: Fake) -> None:
    needs(fake, "calls")
    one = {**of(to=TEXT), "required": ["to"], "oneOf": [URL, BODY]}
    sent = await offered(fake, Action(name="send", description="Send.", parameters=one))
    (tool,) = sent.tools
    assert [*tool.parameters["properties"]] == ["to", "url", "text"]
    assert tool.parameters["required"] == ["to"]
    assert tool.description == "Send. Pass exactly one of these groups of arguments: url; text."


async def test_kinds_at_the_root_are_one_parameter(fake: Fake) -> None:
    needs(fake, "calls")
    kinds = [of(kind={"const": kind}, at=TEXT) | {"required": ["kind"]} for kind in ("a", "b")]
    schema = await schema_of(fake, {"oneOf": kinds})
    assert schema["properties"]["kind"]["enum"] == ["a", "b"]
    assert schema["required"] == ["kind"]


@in_one_test("key", ["filter[id]", "$top", "größe", "x" * 80])
async def test_a_parameter_that_a_provider_refuses_has_another_name(fake: Fake, key: str) -> None:
    needs(fake, "calls", "history")
    action = Action(name="list", parameters={**of(**{key: TEXT, "q": TEXT}), "required": [key]})
    written = json.dumps({key: "7", "q": "a"})
    earlier = ActionExecutionMessage(id="c1", name="list", arguments=written)
    request = replace(asking(HELLO, earlier), actions=[action])
    fake.plays(Say("Hi"), Stop())
    await answer(fake, request)
    sent = fake.asked[-1]
    (known,) = sent.tools[0].parameters["required"]
    assert [heard.call[2] for heard in sent.messages if heard.call] == [{known: "7", "q": "a"}]

    made = json.dumps({known: "8", "q": "b"})
    pieces = [CallArgs("c2", made[:9]), CallArgs("c2", made[9:])]
    fake.plays(CallStart("c2", "list"), *pieces, CallEnd("c2"), Stop("tool_calls"))
    ((_, arguments),) = calls_in(await answer(fake, request)).values()
    assert json.loads(arguments) == {key: "8", "q": "b"}


async def test_references_by_anchors_and_identifiers_are_offered(fake: Fake) -> None:
    item = {**of(x={**TEXT, "$anchor": "x"}, y={"$ref": "#x"}), "$id": "item.json"}
    name = {**TEXT, "$anchor": "name"}
    parameters = {
        **of(
            a={"$ref": "#name"}, b={"$ref": "item.json"}, c={"$ref": "/s/item.json#/properties/x"}
        ),
        "$id": "https://a.test/s/root.json",
        "$defs": {"Item": item, "Name": name},
    }
    schema = await schema_of(fake, parameters)

    def resolve(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if reference := node.get("$ref"):
            return resolve(schema["$defs"][reference.removeprefix("#/$defs/")])
        return {key: resolve(value) for key, value in node.items()}

    assert resolve(schema["properties"]) == {"a": TEXT, "b": of(x=TEXT, y=TEXT), "c": TEXT}


async def test_a_schema_that_refers_to_itself_is_offered(fake: Fake) -> None:
    needs(fake, "calls")
    node = of(name=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
    schema = await schema_of(fake, {**of(top={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}})
    assert "children" in json.dumps(schema)


@in_one_test(
    "parameter",
    [
        {"type": "integer", "enum": [1, 2, 3]},
        {"type": "string", "enum": ["a", None], "nullable": True},
        {"const": "a"},
        {"type": "string", "enum": ["", "a"]},
        {"type": "string", "enum": [""]},
        {"type": "string", "nullable": True, "pattern": "^a"},
        {"type": "string", "pattern": r"^(?!\.)"},
        {"type": "string", "pattern": r"^[\p{L}]+$"},
        {"type": "object", "patternProperties": {r"^(?<!x)": TEXT, "^a": TEXT}},
        {"type": ["string", "number"], "minLength": 1},
        {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}], "default": None},
        {"type": "object", "properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}, {}]},
        {"type": "object", "additionalProperties": {"type": "int"}, "propertyNames": {}},
        {"allOf": [of(a=TEXT), of(b=TEXT)], "description": None},
        {"type": "object", "properties": [], "required": ["gone"]},
        {"type": "array", "items": True, "minItems": "1", "maxItems": -1},
        {"type": "array", "minItems": "1e999", "maxItems": 1e300},
        {"type": "array", "items": [], "additionalItems": False},
        {"type": "STRING", "enum": []},
        {"type": {"a": 1}, "examples": "x"},
        "string",
        True,
        None,
    ],
)
async def test_a_parameter_of_any_form_is_offered(fake: Fake, parameter: Any) -> None:
    needs(fake, "calls")
    assert [*(await schema_of(fake, of(q=parameter)))["properties"]] == ["q"]


async def test_a_long_description_loses_nothing(fake: Fake) -> None:
    needs(fake, "calls")
    words = " ".join(f"word{n}" for n in range(400))
    sent = await offered(fake, Action(name="look", description=words))
    (tool,) = sent.tools
    rest = tool.parameters.get("description", "")
    assert f"{tool.description.rstrip('…')}{rest.lstrip('…')}" == words


async def test_the_tools_of_the_page_come_first_where_their_number_is_limited(fake: Fake) -> None:
    needs(fake, "calls")

    async def run(*_: Any) -> None: ...

    servers = [Action(name=f"t{n}", run=run, mcp_server="http://a.test/mcp") for n in range(600)]
    own = Action(name="own", run=run)
    names = [tool.name for tool in (await offered(fake, *servers, own, Action(name="page"))).tools]
    assert {"own", "page"} <= {*names}
    assert len(names) == (TOOL_RULES.get(fake.name, COMMON).max_tools or 602)


async def test_a_tool_that_must_be_called_and_is_left_out_is_an_error(fake: Fake) -> None:
    needs(fake, "calls", "tool_choice_function")
    wishes = asking(tool_choice="function", tool_choice_name="bad")
    bad = Action(name="bad", parameters=TEXT)
    fake.plays(Say("Hi"), Stop())
    _, error = await failure(fake, replace(wishes, actions=[SET_COLOR, bad]))
    assert isinstance(error, Misuse)
    assert "'bad' must be called, but its parameters are of type 'string'" in error.message


@in_one_test(
    "words",
    [
        "registry.ollama.ai/library/gemma2:2b does not support tools",
        "This model doesn't support tool use in streaming mode.",
        "No endpoints found that support tool use. Try disabling a tool.",
        "tool calling is not supported with this model",
        "Function calling is not enabled for models/gemma-3-27b-it",
        "The model does not support tool use or function calling",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "tools is not supported in this model.",
        "o1-mini does not support the tools parameter",
        "litellm.UnsupportedParamsError: ollama does not support parameters: ['tools']",
        "Cannot use tools with stream",
        "Template error: tools not supported by template",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'tools'), 'msg': 'Extra inputs are not"
        " permitted'}]",
    ],
)
async def test_a_model_without_tools_has_an_error_of_its_own(fake: Fake, words: str) -> None:
    fake.plays(Fails(400, message=words))
    _, error = await failure(fake)
    assert isinstance(error, ToolsRefused)
    assert "'shared_state'" in error.message


@in_one_test(
    "words",
    [
        "This model does not support tool_choice 'required'.",
        "Parallel tool calls are not supported with this model.",
        "does not support tools of type web_search",
    ],
)
async def test_other_refusals_are_none_of_all_tools(fake: Fake, words: str) -> None:
    fake.plays(Fails(400, message=words))
    _, error = await failure(fake)
    assert not isinstance(error, ToolsRefused)


@pytest.mark.stalls(reason="A schema as large as may be is sent by the same process.")
@in_one_test("place", ["root", "parameter"])
async def test_references_that_double_at_each_step_end(fake: Fake, place: str) -> None:
    needs(fake, "calls")
    defs: Json = {"d40": URL}
    for n in range(40):
        twice = [{"$ref": f"#/$defs/d{n + 1}"}] * 2
        whole = of(left=twice[0], right=twice[1]) if place == "parameter" else {"allOf": twice}
        defs[f"d{n}"] = whole
    first = {"$ref": "#/$defs/d0"}
    parameters = {**(of(q=first) if place == "parameter" else first), "$defs": defs}
    sent = await offered(fake, SET_COLOR, Action(name="double", parameters=parameters))
    assert len(sent.tools) == (1 if place == "root" else 2)
