"""Run what a remote endpoint offers as an action."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.agents.remote.catalog import OfferedAction
from copilot_runtime.agents.remote.link import RUN_ACTION, Link, is_good
from copilot_runtime.errors import NetworkError
from copilot_runtime.interfaces import Action, ActionContext, Caller


def remote_action(offered: OfferedAction, link: Link) -> Action:
    """Return the action. It is asked for once: nobody knows what it has done before it failed."""

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        caller = Caller(user=context.user, headers=context.headers, properties=context.properties)
        body = {
            "name": offered.name,
            "arguments": {**values},
            "properties": {**context.properties},
        }
        headers = await link.headers(caller)
        status, answer = await link.json(RUN_ACTION, body, headers, offered.name)
        if not is_good(status):
            raise NetworkError(
                answer["error"] or f"The remote action {offered.name!r} failed.",
                hint=f"{link.shown} answered {status}.",
            )
        if not isinstance(answer, dict):
            raise NetworkError(
                f"The remote action {offered.name!r} returned something that cannot be read.",
                hint=f"{link.shown} did not answer with a JSON object.",
            )
        return answer.get("result")

    return Action(
        name=offered.name,
        description=offered.description,
        parameters=offered.parameters,
        run=run,
    )
