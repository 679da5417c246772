"""The tool service: schemas made of messages, and errors that are results."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from copilot_runtime.api import ActionContext, RunInput
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.extensions.knowledge.resource_types import create_resource
from copilot_runtime.extensions.tools.catalog import ToolCatalog
from copilot_runtime.extensions.tools.catalog.definition import parse_tools
from copilot_runtime.extensions.tools.catalog.endpoints import References
from tests.conformance.copilot_ld.cases import Case

RUN = RunInput(thread_id="t", run_id="r", messages=())
CONTEXT = ActionContext(thread_id="t", run_id="r", call_id="c", properties={}, headers={})

ENDPOINTS = {
    "bad": {"method": "x.y", "request": "a.B"},
    "badreq": {"method": "a.B.C", "request": "a"},
    "nosvc": {"method": "foo.Foo.Bar", "request": "foo.Request"},
    "noreq": {"method": "tool.Tool.CallTool", "request": "tool.Nothing"},
    "call_tool": {"method": "tool.Tool.CallTool", "request": "tool.ToolCall"},
}
"""The endpoints that the cases of errors speak of, by the names of their tools."""

DESCRIPTORS = {"purpose", "applicability", "instructions", "evaluation"}
"""The parts of a description, as the files of tools have them."""

PROTO = """
syntax = "proto3";
package tool;
message QueryFilter { optional string threshold = 1; }
message Empty { bool void = 1; }
message ToolCallResult { optional string content = 1; }
message ToolCall { string name = 1; }
service Tool { rpc CallTool(ToolCall) returns (ToolCallResult); }
"""

_FIELDS = re.compile(
    r"(?P<rule>repeated |optional )?(?:(?P<type>\w+) )?(?P<names>\w+(?:, \w+)*)\s*(?:;|$)"
)


async def answer(case: Case) -> Any:
    if isinstance(case.input, dict) and case.input.keys() & DESCRIPTORS:
        fields = {name: case.input[name] for name in DESCRIPTORS & case.input.keys()}
        text = json.dumps({"tool": {**fields, **ENDPOINTS["call_tool"]}})
        sections = parse_tools(text, "tools.yml")["tool"].sections
        return sections if isinstance(case.output, str) else {"description": sections}
    with TemporaryDirectory() as folder:
        if "schema" in case.feature or "field" in case.feature:
            return await describe(case, Path(folder))
        catalog = build_catalog(Path(folder), PROTO, ENDPOINTS)
        result = await catalog.call_request(as_object(case.input), CONTEXT)
        await catalog.aclose()
        return {"content": result.content}


async def describe(case: Case, folder: Path) -> Any:
    """Return what a model is sent of a tool whose request has the fields that a case names."""
    given = case.input
    if isinstance(given, str):
        name, _, fields = given.partition(":")
        endpoint, request = "tool.Query.Call", name.rpartition(".")[2]
    else:
        endpoint, fields, request = given["endpoint"], given["request fields"], "Request"
    package, service, method = endpoint.split(".")
    lines = "".join(f"  {line} = {n};\n" for n, line in enumerate(list_fields(fields), 1))
    proto = PROTO.replace("package tool", f"package {package}") + (
        f"message {request} {{\n{lines}}}\n"
        f"service Its{service} {{ rpc {method}({request}) returns (ToolCallResult); }}\n"
    )
    tool = case.output.get("name", "tool")
    method_name = f"{package}.Its{service}.{method}"
    endpoints = {tool: {"method": method_name, "request": f"{package}.{request}"}}
    catalog = build_catalog(folder, proto, endpoints, package)
    (action,) = await catalog.describe(tool, RUN)
    await catalog.aclose()
    parameters = drop_descriptions(action.parameters)
    if "parameters" not in case.output:
        return parameters
    fields = {"name": action.name, "parameters": parameters}
    tokens = create_resource("tool.ToolFunction", fields).id.tokens
    return {**fields, "stored_id_tokens": tokens}


def build_catalog(
    folder: Path, proto: str, endpoints: JsonObject, package: str = "tool"
) -> ToolCatalog:
    (folder / "proto").mkdir()
    (folder / "proto" / f"{package}.proto").write_text(proto)
    path = folder / "tools.yml"
    path.write_text(json.dumps(endpoints))  # which is YAML, too
    catalog = ToolCatalog(path, references=References({}))
    catalog.load(is_strict=False)
    return catalog


def list_fields(text: str) -> list[str]:
    """Return fields as a `.proto` has them: `string a, b; optional Type c` are three."""
    return [
        f"{found['rule'] or ''}{found['type'] or guess_type(name)} {name}"
        for found in _FIELDS.finditer(text)
        for name in found["names"].split(", ")
    ]


def guess_type(name: str) -> str:
    return "QueryFilter" if name == "filter" else "string"


def drop_descriptions(schema: Any) -> JsonObject:
    properties: JsonObject = {
        name: {key: value for key, value in one.items() if key != "description"}
        for name, one in schema["properties"].items()
    }
    return {**schema, "properties": properties}
