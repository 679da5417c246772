"""What is meant for programs, in an application of somebody else."""

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request

from tests.extensions.mcp.server.clients import over_http, text_of
from tests.transports.served import runtime_of
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio


def signed_in(request: Request) -> None:
    if "authorization" not in request.headers:
        raise HTTPException(401)


def application() -> FastAPI:
    app = FastAPI()
    runtime_of().mount(app, PATH, dependencies=[Depends(signed_in)])
    return app


async def test_the_remote_endpoint_is_there_for_who_may_come_in() -> None:
    body = {"name": "add", "arguments": {"a": 1}}
    async with serving(application()) as port:
        refused = await Browser(port).ask("POST", "/actions/execute", body)
        welcome = await Browser(port).signed_in("ann").ask("POST", "/actions/execute", body)
    assert (refused.status, welcome.json()) == (401, {"result": "2"})


async def test_the_mcp_server_is_there_too() -> None:
    headers = {"authorization": "Bearer ann"}
    async with serving(application()) as port, over_http(Browser(port), headers) as session:
        assert text_of(await session.call_tool("add", {"a": 1})) == "2"
