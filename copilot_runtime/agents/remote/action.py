"""Runs an action of a remote endpoint."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.agents.remote.catalog import CatalogAction
from copilot_runtime.agents.remote.link import RUN_ACTION, Link, is_success
from copilot_runtime.errors import NetworkError
from copilot_runtime.interfaces import Action, ActionContext, Caller


def remote_action(entry: CatalogAction, link: Link) -> Action:
    """Return the action. A call is never repeated: it may have acted before it failed."""

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        caller = Caller(user=context.user, headers=context.headers, properties=context.properties)
        body = {
            "name": entry.name,
            "arguments": {**values},
            "properties": {**context.properties},
        }
        headers = await link.headers(caller)
        status, answer = await link.json(RUN_ACTION, body, headers, entry.name)
        if not is_success(status):
            raise NetworkError(
                answer["error"] or f"The remote action {entry.name!r} failed.",
                hint=f"{link.safe_url} answered {status}.",
            )
        if not isinstance(answer, dict):
            raise NetworkError(
                f"The remote action {entry.name!r} returned something that cannot be read.",
                hint=f"{link.safe_url} did not answer with a JSON object.",
            )
        return answer.get("result")

    return Action(
        name=entry.name,
        description=entry.description,
        parameters=entry.parameters,
        run=run,
    )
