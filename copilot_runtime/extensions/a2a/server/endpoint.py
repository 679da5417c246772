"""The A2A server: cards, JSON-RPC and HTTP+JSON, each at its own path below the runtime's URL.

https://a2a-protocol.org/latest/specification/
"""

from collections.abc import Mapping
from urllib.parse import unquote

from copilot_runtime.api.agent import DEFAULT_AGENT, Agent
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.generative_ui.options import GenerativeUi
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.transports.agui.handlers import AgentNames
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
from copilot_runtime.transports.transport import Refusal, Services, Transport

_CARDS = (".well-known/agent-card.json", ".well-known/agent.json")
_PREFIX = "a2a/"


class A2aEndpoint(Transport):
    """Handles A2A clients for each agent of the runtime.

    Tasks are runs, and contexts are threads, of the user that `authenticate` returned.
    """

    paths = (
        *(f"{_PREFIX}{card}" for card in _CARDS),
        "a2a/{agent}",
        "a2a/{agent}/{rest:path}",
    )
    for_programs = True

    def __init__(self, services: Services) -> None:
        try:
            from copilot_runtime.extensions.a2a.server.dispatch import Dispatcher
        except ImportError as error:
            raise MissingPackage("An A2A server", "a2a-sdk", "a2a") from error
        settings = narrow_settings(services.settings)
        options = services.parts.find(GenerativeUi)
        a2ui = None if options is None else options.a2ui
        self._names = AgentNames(services.runs, chat=services.serves_chat)
        self._url = settings.a2a_url
        self._has_a2ui = a2ui is None or a2ui.enabled
        self._dispatcher = Dispatcher(
            services.runs,
            max_items=settings.max_items,
            keep_alive=settings.keep_alive,
            has_a2ui=self._has_a2ui,
        )

    def find_scope(self, request: Request) -> str:
        """Return the required scope.

        GET needs `threads:read`, other methods `runs:start`, and cards none.
        """
        if request.path.endswith(_CARDS):
            return ""
        return "threads:read" if request.method == "GET" else "runs:start"

    async def __call__(self, request: Request) -> None:
        agents = await self._names.agents(request.caller)
        path = request.path.removeprefix(_PREFIX)
        if path in _CARDS:
            name, rest = _find_default(agents), path
        else:
            name, _, rest = path.partition("/")
            name = unquote(name)
        agent = agents.get(name)
        if agent is None:
            raise Refusal(404, {"error": f"There is no agent {name[:100]!r}."})
        if rest in _CARDS:
            await self._respond_card(request, name, agent)
            return
        target = await self._names.resolve(name, request.caller)
        work = self._dispatcher.answer(request, name, target, f"/{rest}" if rest else "")
        await run_until_disconnect(work, request.receive, None)

    async def _respond_card(self, request: Request, name: str, agent: Agent) -> None:
        from a2a.server.request_handlers.response_helpers import agent_card_to_dict

        from copilot_runtime.extensions.a2a.server.card import build_card, find_url

        if request.method != "GET":
            raise Refusal(405, {"error": "A card is fetched by GET."}, {"allow": "GET"})
        url = find_url(request, self._url)
        card = build_card(name, agent, url, has_a2ui=self._has_a2ui)
        await request.respond_json(
            200, agent_card_to_dict(card), {"cache-control": "private, max-age=60"}
        )


def _find_default(agents: Mapping[str, Agent]) -> str:
    """Return the name of the agent at the root path: the default, or the only one."""
    return next(iter(agents)) if len(agents) == 1 else DEFAULT_AGENT
