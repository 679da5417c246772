"""The playground of the chat: an operator asks an agent with other instructions or another model.

The endpoint says what can be changed. The changes come with the run itself, see
`copilot_runtime/transports/agui/overrides.py`, and the thread keeps the names of what was changed.
"""

from collections.abc import Sequence
from contextlib import aclosing
from urllib.parse import unquote

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.agents.instructions import InstructedAgent
from copilot_runtime.api.agent import DEFAULT_AGENT, Agent
from copilot_runtime.api.events import Custom, Events
from copilot_runtime.api.identity import Caller, Forbidden
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.security.loopback import is_from_other_page
from copilot_runtime.telemetry import semconv
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport, check_method

_PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}


class OperatorPlayground:
    """The playground, for those who may read all traces, and for pages of this server alone."""

    def __init__(self, access: TraceAccess) -> None:
        self._access = access

    def authorize(self, request: Request) -> None:
        """Raise `Forbidden` for another caller, or for a page of another origin."""
        if _is_from_other_origin(request):
            raise Forbidden("Pages of other origins may not change agents.")
        if not self._access.allows(request.scope, request.headers, request.caller):
            raise Forbidden(
                "Only operators of this server may change an agent for a question.",
                hint="They have the scope operate, or are named in telemetry.operators.",
            )


def _is_from_other_origin(request: Request) -> bool:
    """Return whether a page of another origin sent a request.

    Browsers send `Sec-Fetch-Site` to HTTPS and this machine; elsewhere, `Origin` must be the host.
    """
    headers = request.headers
    origin = headers.get("origin")
    if origin is None or "sec-fetch-site" in headers:
        return is_from_other_page(headers)
    return origin.partition("://")[2] != headers.get("host")


class PlaygroundEndpoint(Transport):
    """Answers `GET playground/{agent}` with the values of an agent that can be changed."""

    paths = ("playground/{agent}",)

    def __init__(self, services: Services) -> None:
        self._playground = OperatorPlayground(services.parts.get(TraceAccess))
        self._keeps_content = services.telemetry.keeps_content
        self._runs = services.runs

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.console.rest import rest_routes  # brings FastAPI along

        return rest_routes(path, router)

    async def __call__(self, request: Request) -> None:
        check_method(request, "GET", "HEAD")
        self._playground.authorize(request)
        body = dumps(await self._describe(unquote(request.path.split("/")[1]), request.caller))
        await request.respond(200, b"" if request.method == "HEAD" else body, headers=_PRIVATE)

    async def _describe(self, agent_name: str, caller: Caller) -> JsonObject:
        """Return the changeable values of an agent. Raises `AgentNotFound`."""
        agents = await self._runs.agents_for(caller)
        is_chat = agent_name == DEFAULT_AGENT and agent_name not in agents
        name = None if is_chat else agent_name
        agent = await self._runs.agent(name, caller)
        run = RunInput(
            thread_id="",
            run_id="",
            messages=[],
            agent=name,
            headers=caller.headers,
            properties=caller.properties,
            user=caller.user,
            identity=caller.identity,
        )
        # the analyst and the planner have tools of their own
        actions = [] if agent.has_data or agent.has_plans else await self._runs.actions(run)
        return {
            "has_instructions": isinstance(agent, InstructedAgent),
            "instructions": _find_instructions(agent) if self._keeps_content else None,
            "is_secret": not self._keeps_content,
            "tools": [{"name": it.name, "description": it.description} for it in actions],
        }


def _find_instructions(agent: Agent) -> str | None:
    """Return the text of an agent's instructions; `None` if a function writes them."""
    found = agent.instructions if isinstance(agent, InstructedAgent) else None
    return "" if found is None else found if isinstance(found, str) else None


def mark_changes(events: Events, run: RunInput) -> Events:
    """Begin the answer to a changed run with the changes, which its thread keeps.

    Thread and trace say that the instructions are others, and not which.
    """
    if (changes := run.overrides) is None:
        return events
    run.span.set_attributes({semconv.RUN_OVERRIDES: changes.names})
    fields = {
        "instructions": None if changes.instructions is None else True,
        **vars(changes.parameters),
        "tools": None if changes.tools is None else sorted(changes.tools),
    }
    return _prepend(Custom(name="playground", value=drop_none(fields)), events)


async def _prepend(first: Custom, events: Events) -> Events:
    yield first
    async with aclosing(events):
        async for event in events:
            yield event
