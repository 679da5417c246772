"""Checks of a running server: the requests of a React application, without a question."""

import asyncio
from collections.abc import Sequence

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, as_object, get_object
from copilot_runtime.cli.agent_client import parse_url
from copilot_runtime.extensions.operations.doctor import (
    Finding,
    explain_error,
    good,
    problem,
    warning,
)
from copilot_runtime.http.client import Exchange, Upstream

_PAGE = "http://localhost:3000"
"""The origin of a React application that is being developed."""
_AGENTS = {"query": "query availableAgents { availableAgents { agents { name } } }"}
_HINT = "The URL is the one that <CopilotKit runtimeUrl> gets, such as http://host:8000/graphql."


async def examine_server(url: str, *, seconds: float = 20) -> Sequence[Finding]:
    """Send the first requests of CopilotKit's clients, and the preflight of a page."""
    try:
        async with asyncio.timeout(seconds):
            return await _send_requests(url)
    except TimeoutError:
        return [problem("server", f"It took longer than {seconds:g} seconds.", _HINT)]


async def _send_requests(url: str) -> Sequence[Finding]:
    try:
        url = parse_url(url).rstrip("/")
    except CopilotError as error:
        return [explain_error("server", error)]
    upstream = Upstream("The server", max_retries=0)
    found: list[Finding] = []
    try:
        for name, path, query, key in (
            ("CopilotKit 1.50 and later", "/info", None, "agents"),
            ("CopilotKit up to 1.10", "", _AGENTS, "data"),
        ):
            method = "GET" if query is None else "POST"
            status, answer = await _send(upstream, method, f"{url}{path}", query)
            if key in answer:
                names = ", ".join(get_object(answer, "agents"))[:200] or "the plain chat"
                found.append(good(name, f"answered: {names}" if path else "answered"))
            elif status in (401, 403):
                found.append(warning(name, f"answered {status}", "The server asks for a sign-in."))
            else:
                found.append(problem(name, f"answered {status}, and not as a runtime does", _HINT))
        found.append(await _ask_for_page(upstream, url))
    except CopilotError as error:
        found.append(explain_error("server", error))
    finally:
        await upstream.aclose()
    return found


async def _send(
    upstream: Upstream, method: str, url: str, body: JsonObject | None
) -> tuple[int, JsonObject]:
    headers = {"content-type": "application/json", "accept": "application/json"}
    data = None if body is None else dumps(body)
    async with Exchange(upstream, method, url, data, headers) as response:
        text = await response.text()
    try:
        return response.status, as_object(loads(text))
    except ValueError:
        return response.status, {}


async def _ask_for_page(upstream: Upstream, url: str) -> Finding:
    headers = {
        "origin": _PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    async with Exchange(upstream, "OPTIONS", url, None, headers) as response:
        allowed = response.headers.get("access-control-allow-origin", "")
        await response.text()
    if allowed in ("*", _PAGE):
        return good("pages", f"Pages of {_PAGE} may ask.")
    return warning(
        "pages",
        f"Pages of {_PAGE} may not ask.",
        "Write the origin of the page into cors_origins, if it is another one than the server's.",
    )
