"""MCP servers with user interfaces, scripted: `python -m tests.conformance.genui.mcp_server`.

`/mcp` has the tools of the recordings, `/more` results of all kinds, `/paged` more tools than fit
on a page, `/second` tools with the names of others. `/__log` has the requests.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.conformance.genui.scripts.events import make, ops

Tool = dict[str, Any]


class RpcError(Exception):
    """What a server answers instead of a result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.value = {"code": code, "message": message}


def build_tool(name: str, description: str = "", *, schema: Any = None, **meta: Any) -> Tool:
    told = {"description": description} if description else {}
    parameters = schema or {"type": "object", "properties": {}}
    tool: Tool = {"name": name, **told, "inputSchema": parameters}
    return {**tool, "_meta": meta} if meta else tool


def show(name: str, **more: Any) -> dict[str, Any]:
    return {"resourceUri": f"ui://weather/{name}.html", **more}


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WIDE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/b"}], "default": 5}},
    "additionalProperties": False,
    "$defs": {"b": {"type": "string", "enum": ["x", "y"]}},
}
WEATHER = [
    build_tool("show_weather", "Weather card", schema=CITY, ui=show("card")),
    build_tool("show_legacy", "Legacy key", **{"ui/resourceUri": "ui://weather/legacy.html"}),
    build_tool("model_only", "Model only", ui=show("m", visibility=["model"])),
    build_tool("app_only", "App only", ui=show("a", visibility=["app"])),
    build_tool("soft_error", "isError", ui=show("e")),
    build_tool("hard_error", "rpc error", ui=show("h")),
    build_tool("no_text", "no text content", ui=show("n")),
    build_tool("no_schema", schema={"type": "object"}, ui=show("s")),
    build_tool("delete_everything", "plain tool without UI"),
]

HELLO = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "description": "A"}
INSIDE = {
    "type": "resource",
    "resource": {"uri": "file:///a.txt", "text": "a", "mimeType": "text/plain"},
}
RESULTS: Mapping[str, dict[str, Any]] = {
    "image": {"content": [IMAGE]},
    "image_and_text": {"content": [HELLO, IMAGE, {**HELLO, "text": "bye"}]},
    "structured": {"content": [HELLO], "structuredContent": {"n": 1, "list": [{"a": None}]}},
    "structured_error": {"content": [HELLO], "structuredContent": {"n": 1}, "isError": True},
    "empty": {"content": []},
    "empty_text": {"content": [{"type": "text", "text": ""}]},
    "linked": {"content": [LINK]},
    "embedded": {"content": [INSIDE]},
    "audio": {"content": [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}]},
    "with_meta": {"content": [{**HELLO, "_meta": {"p": 1}}], "_meta": {"a/b": {"c": [1]}}},
    "only_meta": {"content": [], "_meta": {"x": 1}},
    "unknown_part": {"content": [{"type": "video", "url": "x"}, HELLO]},
    "annotated": {"content": [{**HELLO, "annotations": {"audience": ["user"], "priority": 0.5}}]},
    "no_content": {"structuredContent": {"n": 1}},
    "many_texts": {"content": [HELLO, {**HELLO, "text": ""}, {**HELLO, "text": "\u4e16\n"}]},
    "surface": {"content": [{"type": "text", "text": json.dumps(ops(*make("app")))}]},
}
MORE = [
    *(build_tool(name, name, ui=show(name)) for name in RESULTS),
    build_tool("echo", "Returns its arguments", ui=show("echo")),
    build_tool("hard_error", "rpc error", ui=show("h")),
    build_tool("model_only", "m", ui=show("m", visibility=["model"])),
    build_tool("both", "b", ui=show("b", visibility=["app", "model"])),
    build_tool("for_nobody", "n", ui=show("n", visibility=[])),
    build_tool("null_visibility", "n", ui=show("n", visibility=None)),
    build_tool("text_visibility", "n", ui=show("n", visibility="model")),
    build_tool("both_keys", "k", ui=show("new"), **{"ui/resourceUri": "ui://weather/old.html"}),
    build_tool("number_uri", "u", ui={"resourceUri": 5}),
    build_tool("legacy", "l", ui={"csp": {}}, **{"ui/resourceUri": "ui://weather/l.html"}),
    build_tool("wide_schema", "w", schema=WIDE, ui=show("w")),
    build_tool("untold", ui=show("u")),
]
SECOND = [build_tool("show_weather", "Another card", schema=CITY, ui=show("second"))]
PAGED = [build_tool(f"page_{at}_tool", f"{at}", ui=show(f"p{at}")) for at in range(4)]
TOOLS = {"/mcp": WEATHER, "/more": MORE, "/second": SECOND, "/paged": PAGED}

LOG: list[Mapping[str, Any]] = []


def call_tool(path: str, params: Mapping[str, Any]) -> Any:
    name, values = params.get("name"), params.get("arguments") or {}
    city = values.get("city")
    match name:
        case "show_weather" if path == "/mcp":
            text = {"type": "text", "text": f"Weather in {city}: 21"}
            return {
                "content": [text],
                "structuredContent": {"city": city, "t": 21},
                "_meta": {"x": 1},
            }
        case "show_weather":
            return {"content": [{"type": "text", "text": f"Second weather in {city}"}]}
        case "soft_error":
            return {"content": [{"type": "text", "text": "it failed softly"}], "isError": True}
        case "hard_error":
            raise RpcError(-32603, "it failed hard: secret-backend:5432")
        case "no_text":
            return {"content": [IMAGE]}
        case "delete_everything":
            return {"content": [{"type": "text", "text": "everything deleted"}]}
        case "echo":
            text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
            return {"content": [{"type": "text", "text": text}], "structuredContent": values}
        case str() if name in RESULTS and path == "/more":
            return RESULTS[name]
        case _ if any(tool["name"] == name for tool in TOOLS[path]):
            return {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
        case _:
            raise RpcError(-32602, f"Unknown tool: {name}")


def read_resource(uri: Any) -> Any:
    if uri == "file:///etc/passwd":
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "root:x:0:0"}]}
    if uri == "ui://weather/blob.html":
        return {"contents": [{"uri": uri, "mimeType": "text/html", "blob": "PHA+"}]}
    if uri == "ui://weather/two.html":
        page = {"uri": uri, "mimeType": "text/html", "text": "<p>"}
        return {"contents": [page, {**page, "text": "<b>"}], "_meta": {"y": 2}}
    if uri == "ui://weather/none.html":
        return {"contents": []}
    if not str(uri).startswith("ui://weather/"):
        raise RpcError(-32002, "Resource not found")
    csp = {"resourceDomains": ["https://cdn.example"], "connectDomains": ["https://api.example"]}
    text = f"<!doctype html><title>{uri}</title><p id=x></p>"
    page = {"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": text}
    return {"contents": [{**page, "_meta": {"ui": {"csp": csp, "prefersBorder": True}}}]}


def answer(path: str, method: str, params: Mapping[str, Any]) -> Any:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "mock", "version": "1"},
            }
        case "tools/list" if path == "/paged":
            at = int(params.get("cursor") or 0)
            more = {"nextCursor": str(at + 2)} if at == 0 else {}
            return {"tools": TOOLS[path][at : at + 2], **more}
        case "tools/list":
            return {"tools": TOOLS[path]}
        case "tools/call":
            return call_tool(path, params)
        case "resources/read":
            return read_resource(params.get("uri"))
        case "ping":
            return {}
        case _:
            raise RpcError(-32601, "Method not found")


async def serve(request: Request) -> Response:
    if request.method == "GET":
        return Response(status_code=405)
    if request.method == "DELETE":
        LOG.append({"http": "DELETE"})
        return Response()
    message = await request.json()
    method, params = message["method"], message.get("params") or {}
    headers = {key: value for key, value in request.headers.items() if key == "authorization"}
    LOG.append({"method": method, "params": params, "headers": headers})
    if "id" not in message:
        return Response(status_code=202)
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    session = {"mcp-session-id": "sess-1"} if method == "initialize" else {}
    try:
        value = {"result": answer(request.url.path, method, params)}
    except RpcError as error:
        value = {"error": error.value}
    return JSONResponse({**reply, **value}, headers=session)


async def serve_log(request: Request) -> JSONResponse:
    requests = [*LOG]
    if request.method == "DELETE":
        LOG.clear()
    return JSONResponse(requests)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port
    paths = [Route(path, serve, methods=["GET", "POST", "DELETE"]) for path in TOOLS]
    app = Starlette(routes=[*paths, Route("/__log", serve_log, methods=["GET", "DELETE"])])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    with config.bind_socket() as sock:
        sock.listen()
        print(f"mcp on http://localhost:{sock.getsockname()[1]}", flush=True)  # noqa: T201
        uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
