"""Chains that LangServe serves, as actions: https://github.com/langchain-ai/langserve.

Of its endpoints, `/input_schema` says what a chain takes and `/invoke` runs it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from copilot_runtime.errors import ConfigurationFailed, NetworkError
from copilot_runtime.interfaces import Action, ActionContext, RunInput
from copilot_runtime.upstream import Upstream

NAME = "LangServe"

Json = dict[str, Any]

_INPUT = "input"
"""What the parameter is called of a chain that takes one thing and not an object."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def langserve_actions(
    url: str,
    *,
    name: str | None = None,
    description: str = "",
    parameters: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> "LangServeChain":
    """Return the chain at an address such as `https://chains.example/joke` as a source of actions.

    Its `name` is by default the last part of the address. `parameters` is the JSON schema of its
    input, which the chain is asked for otherwise. `timeout` is in seconds. Raises
    `ConfigurationFailed` for what is no address.
    """
    return LangServeChain(url, name, description, parameters, headers or {}, timeout)


class LangServeChain:
    """One chain, asked what it takes when it is needed first."""

    def __init__(
        self,
        url: str,
        name: str | None,
        description: str,
        parameters: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationFailed(
                f"The chain's address {url!r} is not an address.",
                hint="It looks like https://chains.example/joke.",
            )
        self.url = url.rstrip("/")
        self.name = name or _name_in(parts.path) or "chain"
        self.description = description
        self._schema = parameters
        self._headers = headers
        self._timeout = timeout
        # asked once: nobody knows what a chain has done before it failed
        self._upstream = Upstream(NAME, idle_timeout=timeout, max_retries=0)

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the chain as an action. Raises `NetworkError` when it cannot be asked."""
        del run  # it is the same for everybody
        if self._schema is None:
            self._schema = await self._asked("GET", "input_schema")
        schema = cast("Mapping[str, Any]", self._schema)
        whole = schema.get("type") == "object"
        action = Action(
            name=self.name,
            description=self.description or str(schema.get("description") or ""),
            parameters=schema if whole else _wrapped(schema),
            run=self._run_whole if whole else self._run_one,
            timeout=self._timeout,
        )
        return [action]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _run_whole(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        del context
        return await self._invoked({**values})

    async def _run_one(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        del context
        return await self._invoked(values.get(_INPUT))

    async def _invoked(self, given: Any) -> Any:
        answer = await self._asked("POST", "invoke", {"input": given, "config": {}, "kwargs": {}})
        match answer.get("output"):
            case {"content": str(text), "type": _}:  # a message
                return text
            case output:
                return output

    async def _asked(self, method: str, path: str, body: Any = None) -> Json:
        reply = await self._upstream.request_json(method, f"{self.url}/{path}", body, self._headers)
        if not 200 <= reply.status < 300 or not isinstance(reply.body, dict):
            said: Any = cast("Json", reply.body).get("detail") if reply.body else None
            raise NetworkError(
                f"The chain {self.name!r} answered {reply.status}{f': {said}' if said else ''}.",
                hint=f"Is the chain at {self.url!r}? Asked was /{path}.",
            )
        return cast("Json", reply.body)


def _name_in(path: str) -> str:
    return _NOT_IN_NAMES.sub("_", path.rstrip("/").rpartition("/")[2])[:64]


def _wrapped(schema: Mapping[str, Any]) -> Json:
    """Return the schema of an object around an input that is none.

    A chat model takes a text, a prompt or messages; a text is what another model can write.
    """
    one: Mapping[str, Any] = schema
    choices: Any = schema.get("anyOf") or ()
    for choice in choices:
        if choice.get("type") == "string":
            one = {"type": "string"}
    kept = {key: one[key] for key in ("$defs", "definitions") if key in one}
    inner = {key: value for key, value in one.items() if key not in kept}
    return {"type": "object", "properties": {_INPUT: inner}, "required": [_INPUT], **kept}
