"""`POST background/{agent}`: start a run whose answer is posted to a URL."""

from collections.abc import Sequence
from urllib.parse import unquote

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.api.messages import new_id
from copilot_runtime.base.jsonvalue import drop_none, require_text
from copilot_runtime.extensions.webhooks.delivery import Webhooks
from copilot_runtime.transports.agui.decode import run_input
from copilot_runtime.transports.agui.handlers import AgentNames
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport, check_method


class BackgroundEndpoint(Transport):
    """Starts background runs from the body of an AG-UI run and the field `webhook`."""

    paths = ("background/{agent}",)

    def __init__(self, services: Services) -> None:
        self._webhooks = services.parts.get(Webhooks)
        self._conversations = services.runs
        self._names = AgentNames(services.runs, chat=services.serves_chat)
        self._settings = services.settings

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.webhooks.http.rest import rest_routes  # imports FastAPI

        return rest_routes(path, router)

    def find_scope(self, request: Request) -> str:  # noqa: ARG002
        return "runs:start"

    async def __call__(self, request: Request) -> None:
        check_method(request, "POST")
        body = await request.json_object()
        url = require_text(body, "webhook")
        agent = unquote(request.path.partition("/")[2])
        run = run_input(
            {"threadId": new_id(), "runId": new_id(), **drop_none(body)},
            request.caller,
            agent=await self._names.resolve(agent, request.caller),
            max_messages=self._settings.max_messages,
            max_items=self._settings.max_items,
        )
        request.thread, request.run, request.starts_run = run.thread_id, run.run_id, True
        # a repeated request is in the audit log as a request
        request.starts_run = await self._webhooks.start(self._conversations, run, url)
        await request.respond_json(202, {"threadId": run.thread_id, "runId": run.run_id})
