"""Checks of external services: model provider, embeddings, MCP servers, telemetry receivers."""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import aclosing, suppress
from time import monotonic
from urllib.parse import urlsplit

from copilot_runtime.actions.sources import gather_actions
from copilot_runtime.adapters.demo import DemoAdapter
from copilot_runtime.adapters.empty import EmptyAdapter
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.hooks import call_quietly
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import Parameters, RunInput
from copilot_runtime.api.scheme import AuthenticationUnavailable
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.base.errors import CopilotError, InvalidAnswer
from copilot_runtime.config.loader import list_unused_credentials
from copilot_runtime.extensions.access.authentication.jwt import JwtScheme
from copilot_runtime.extensions.grpc import asks_model
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.mcp.client.source import McpActions
from copilot_runtime.extensions.operations.doctor import (
    Finding,
    explain_error,
    good,
    problem,
    warning,
)
from copilot_runtime.extensions.operations.doctor.risks import list_risks
from copilot_runtime.extensions.settings import Settings, narrow_settings
from copilot_runtime.security.loopback import list_proxy_settings
from copilot_runtime.security.schemes import SchemeChain

_SECONDS = 5.0
"""Connection timeout in seconds, below the timeout of a check."""

_UNREACHED = "Check that it is running, and that proxies and firewalls allow the connection."


async def check_provider(
    runtime: CopilotRuntime, *, calls: bool, is_http: bool = True
) -> Sequence[Finding]:
    """Check the provider's key and connection; with `calls`, request the model."""
    adapter, name = runtime.adapter, "provider"
    if not is_http and not asks_model(narrow_settings(runtime.settings).grpc.services):
        return [good(name, "not needed: none of these services asks a model")]
    if isinstance(adapter, EmptyAdapter):
        return [good(name, "not needed: agents answer, and the runtime has no model of its own")]
    try:
        await adapter.check_key()
    except CopilotError as error:
        return [explain_error(name, error)]
    request = ChatRequest(
        messages=[TextMessage(id="doctor", role="user", content="Answer with the word: well")],
        parameters=Parameters(max_tokens=16),
    )
    if calls:
        return [await _call(runtime, request)]
    endpoint = adapter.endpoint(request)
    if isinstance(adapter, DemoAdapter):
        return [good(name, "the rule-based demo, which needs no model")]
    if endpoint.in_process:
        return [good(name, f"{type(adapter).__name__}: it answers in this process")]
    if not endpoint.url:
        return [good(name, f"{type(adapter).__name__}: not asked, for it costs tokens (--call)")]
    return [await _reach(name, endpoint.url, "Not asked, for it costs tokens: --call asks it.")]


async def _call(runtime: CopilotRuntime, request: ChatRequest) -> Finding:
    begin = monotonic()
    try:
        async with aclosing(runtime.adapter.stream(request)) as events:
            async for _ in events:
                pass
    except InvalidAnswer:
        pass  # it did answer: reasoning may use up the few tokens that it was given
    except Exception as error:  # of any adapter
        return explain_error("provider", error)
    return good("provider", f"answered in {monotonic() - begin:.1f} seconds")


async def check_embeddings(runtime: CopilotRuntime, *, calls: bool) -> Sequence[Finding]:
    """Check the embedder; with `calls`, request an embedding."""
    knowledge = runtime.find(Knowledge)
    if knowledge is None:
        return []
    embedder = knowledge.embedder
    await embedder.check_key()
    if not calls:
        return [good("embeddings", f"{embedder.model}: not asked, --call asks it")]
    [vector] = await embedder.embed(["doctor"])
    return [good("embeddings", f"{embedder.model}: {len(vector)} dimensions")]


async def check_mcp_servers(settings: Settings) -> Sequence[Finding]:
    """Check the connection to MCP servers."""
    return await asyncio.gather(*(_reach("mcp server", url) for url in settings.mcp.servers))


async def check_tools(runtime: CopilotRuntime, *, calls: bool) -> Sequence[Finding]:
    """With `calls`, list the tools of the server, and those that are left out with the reasons."""
    if not calls:
        return [good("tools", "not listed: --call asks MCP servers, and names what is left out")]
    sources = runtime.runtime.sources
    try:
        run = RunInput(thread_id="doctor", run_id="doctor", messages=[])
        actions = await gather_actions(sources, run)
    finally:
        for source in sources:
            await call_quietly(source.aclose)
    servers = [source for source in sources if isinstance(source, McpActions)]
    left_out = [problem for server in servers for problem in server.list_problems()]
    # an adapter prepares the tools before it sends the request, which it does not here
    async with aclosing(runtime.adapter.stream(ChatRequest(messages=[], actions=actions))):
        failing = [check.partition(": ") for check in runtime.adapter.find_failing_checks()]
    left_out += [reason for name, _, reason in failing if name == "tools"]
    hint = "Its author can repair it; McpServer(tools=[...]) leaves it out for good."
    return [
        good("tools", f"{len(actions)} from functions, files and servers"),
        *(warning("tools", text, hint) for text in left_out),
    ]


async def check_telemetry(settings: Settings) -> Sequence[Finding]:
    """Check the connection to telemetry receivers."""
    telemetry = settings.telemetry
    urls = {*telemetry.endpoints.values(), *([telemetry.endpoint] if telemetry.endpoint else [])}
    return await asyncio.gather(*(_reach("telemetry", url) for url in sorted(urls)))


def _check_audience(settings: Settings) -> Finding:
    """Check that tokens are restricted to this server's audience."""
    if (
        "jwt" in settings.access.authenticate
        and not settings.jwt.audience
        and any(not name.startswith("HS") for name in settings.jwt.algorithms)
    ):
        text = "Tokens that the identity provider issues for other applications are accepted here."
        hint = "Set jwt.audience to the name by which the provider knows this server."
        return warning("access", text, hint)
    return good("access", "people and programs sign in")


async def check_access(
    runtime: CopilotRuntime, settings: Settings, *, is_http: bool = True
) -> Sequence[Finding]:
    """Check that authentication is required, and restricted to this server's audience."""
    unused = list_unused_credentials(settings)
    schemes = runtime.find(SchemeChain)
    if runtime.authenticate is not None or schemes is not None:
        tokens = schemes and schemes.find_scheme(JwtScheme)
        keys = [await _check_keys(tokens)] if isinstance(tokens, JwtScheme) else []
        return [_check_audience(settings), *(warning("access", *one) for one in unused), *keys]
    is_local = settings.grpc.is_local
    if is_http:
        is_local = settings.host in ("127.0.0.1", "::1", "localhost")
    text = "Authentication is disabled, and all users share their threads."
    proxies = list_proxy_settings(settings.allowed_hosts, settings.proxy.forwarders)
    if is_http and is_local and proxies:
        is_local = False
        text += f" Other machines reach this server by a proxy: see {' and '.join(proxies)}."
    hint = "Set access.authenticate, such as [api_keys] or [jwt]."
    found = good("access", text) if is_local else warning("access", text, hint)
    return [found, *(problem("access", *one) for one in unused)]


async def check_risks(runtime: CopilotRuntime, settings: Settings) -> Sequence[Finding]:
    """Name settings that give away more than their operator may have meant."""
    has_users = runtime.authenticate is not None or runtime.find(SchemeChain) is not None
    risks = list_risks(settings, has_users=has_users)
    found = [warning(risk.name, risk.text, risk.hint) for risk in risks]
    return found or [good("settings", "none of them is careless")]


async def _check_keys(scheme: JwtScheme) -> Finding:
    """Check that there are keys to verify tokens."""
    if scheme.keys is None:
        return good("jwt keys", "jwt.secret verifies tokens")
    name, hint = "jwt keys", "See whether jwt.issuer and jwt.jwks are right."
    try:
        async with asyncio.timeout(_SECONDS), aclosing(scheme):
            count = len(await scheme.list_usable_keys())
    except TimeoutError:
        text = f"{scheme.place} does not answer within {_SECONDS:g} seconds."
        return problem(name, text, _UNREACHED)
    except AuthenticationUnavailable as error:
        return problem(name, f"Tokens cannot be verified: {error.hint}", hint)
    text = f"{count} key verifies" if count == 1 else f"{count} keys verify"
    return good(name, f"{text} tokens, from {scheme.place}")


async def _reach(name: str, url: str, more: str = "") -> Finding:
    """Check that a server accepts a connection, without a request."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    is_encrypted = parts.scheme in ("https", "grpcs", "wss")
    host, port = parts.hostname or "", parts.port or (443 if is_encrypted else 80)
    where = f"{host}:{port}"
    try:
        context = ssl.create_default_context() if is_encrypted else None
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        return problem(name, f"The certificate of {where} is not trusted: {error.reason}.")
    except TimeoutError:
        return problem(name, f"{where} does not answer within {_SECONDS:g} seconds.", _UNREACHED)
    except OSError as error:
        cause = error.strerror or error
        return problem(name, f"{where} cannot be reached: {cause}.", _UNREACHED)
    writer.close()
    with suppress(OSError):
        async with asyncio.timeout(_SECONDS):
            await writer.wait_closed()
    return good(name, " ".join(filter(None, (f"{where} can be reached.", more))))
