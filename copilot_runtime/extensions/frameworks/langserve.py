"""Chains that LangServe serves, as actions: https://github.com/langchain-ai/langserve.

Of its endpoints, `/input_schema` describes the input of a chain and `/invoke` runs it. `/stream`
is of no use here: an action has one result, and the model waits for all of it. CopilotKit's Node
runtime calls `/invoke` too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.config.checks import mask_credentials
from copilot_runtime.http.client import Upstream
from copilot_runtime.http.errors import parse_url

if TYPE_CHECKING:
    import httpx

NAME = "LangServe"

_INPUT = "input"
"""The name of the only parameter of a chain whose input is not an object."""

Headers = Mapping[str, str] | Callable[[Mapping[str, str]], Mapping[str, str]]
"""Headers, or a function that returns them for the caller's forwardable headers."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def langserve_actions(
    url: str,
    *,
    name: str | None = None,
    description: str = "",
    parameters: Mapping[str, Any] | None = None,
    headers: Headers | None = None,
    timeout: float = 60.0,
    http_client: "httpx.AsyncClient | None" = None,
) -> "LangServeChain":
    """Return the chain at an address such as `https://chains.example/joke` as a source of actions.

    Its `name` is by default the last part of the address. `parameters` is the JSON schema of its
    input; by default it is requested from the chain. `headers` authorize the requests; a function
    gets the headers of the caller that may be forwarded, and returns those to send. `timeout` is in
    seconds. `http_client` is an `httpx.AsyncClient` of the application to send requests with; it is
    not closed here.
    Raises `ConfigurationFailed` for an invalid address.
    """
    return LangServeChain(url, name, description, parameters, headers or {}, timeout, http_client)


class LangServeChain(ActionSource):
    """One chain. The schema of its input is requested when it is needed first."""

    def __init__(
        self,
        url: str,
        name: str | None,
        description: str,
        parameters: Mapping[str, Any] | None,
        headers: Headers,
        timeout: float,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        parse_url(url, "chain's address", "It looks like https://chains.example/joke.")
        self.url = url.rstrip("/").removesuffix("/invoke")
        self.name = name or _build_name(urlsplit(self.url).path) or "chain"
        self.description = description
        self._schema = parameters
        self._headers = headers
        REDACTOR.learn({"url": url, "headers": headers})
        self._timeout = timeout
        # sent once: a chain may have had effects before it failed
        self._upstream = Upstream(
            NAME, idle_timeout=timeout, max_retries=0, http_client=http_client
        )

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the chain as an action. Raises `NetworkError` if its schema cannot be fetched."""
        if self._schema is None:  # it is the same for all callers
            self._schema = await self._request_object("GET", "input_schema", None, run.headers)
        schema = _resolve_ref(self._schema)
        whole = schema.get("type") == "object"
        action = Action(
            name=self.name,
            description=self.description or str(schema.get("description") or ""),
            parameters=schema if whole else _wrap_schema(schema),
            run=self._run_whole if whole else self._run_one,
            timeout=self._timeout,
        )
        return [action]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _run_whole(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        return await self._invoke({**values}, context)

    async def _run_one(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        return await self._invoke(values.get(_INPUT), context)

    async def _invoke(self, value: Any, context: ActionContext) -> Any:
        body = {"input": value, "config": {}, "kwargs": {}}
        answer = await self._request_object("POST", "invoke", body, context.headers)
        if "output" not in answer:
            raise self._failure("without an output", "invoke")
        return _parse_output(answer["output"])

    async def _request_object(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> JsonObject:
        own = self._headers(headers) if callable(self._headers) else self._headers
        reply = await self._upstream.request_json(method, f"{self.url}/{path}", body, own)
        found: Any = reply.body
        if not 200 <= reply.status < 300:
            raise self._failure(f"{reply.status}{_parse_detail(found)}", path)
        if not isinstance(found, dict):
            raise self._failure("with something that is no JSON object", path)
        return cast("JsonObject", found)

    def _failure(self, what: str, path: str) -> NetworkError:
        return NetworkError(
            f"The chain {self.name!r} answered {what}.",
            hint=f"Is the chain at {mask_credentials(self.url)!r}? Asked was /{path}.",
        )


def _build_name(path: str) -> str:
    return _NOT_IN_NAMES.sub("_", path.rstrip("/").rpartition("/")[2])[:64]


def _parse_output(output: Any) -> Any:
    """Return the text of a message; any other output is returned unchanged."""
    match output:
        case {"content": str(text), "type": _}:
            return text
        case {"content": [*parts], "type": _}:
            texts = [part if isinstance(part, str) else part.get("text") or "" for part in parts]
            return "".join(texts)
        case _:
            return output


def _parse_detail(body: Any) -> str:
    """Return the detail of an error of FastAPI: a text, or a list of problems with the input."""
    detail: Any = cast("JsonObject", body).get("detail") if isinstance(body, dict) else None
    if isinstance(detail, list):
        wrong = cast("list[Any]", detail)
        detail = "; ".join(_describe_problem(one) for one in wrong if isinstance(one, dict))
    return f": {detail}" if detail else ""


def _describe_problem(problem: JsonObject) -> str:
    where = ".".join(map(str, problem.get("loc") or ()))
    return f"{where}: {problem.get('msg')}" if where else str(problem.get("msg"))


def _resolve_ref(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with its outermost `$ref` resolved."""
    ref = schema.get("$ref")
    if not isinstance(ref, str):
        return schema
    holder, _, name = ref.removeprefix("#/").partition("/")
    found: Any = (schema.get(holder) or {}).get(name)
    if not isinstance(found, dict) or "$ref" in found:
        return schema
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**rest, **cast("JsonObject", found)}


def _wrap_schema(schema: Mapping[str, Any]) -> JsonObject:
    """Wrap the schema of an input that is not an object in that of an object.

    A chat model accepts a text, a prompt or messages; of these, a model can write a text.
    """
    one: Mapping[str, Any] = schema
    choices: Any = schema.get("anyOf") or ()
    for choice in choices:
        if isinstance(choice, dict) and cast("JsonObject", choice).get("type") == "string":
            one = {"type": "string"}
    definitions = {key: one[key] for key in ("$defs", "definitions") if key in one}
    inner = {key: value for key, value in one.items() if key not in definitions}
    return {"type": "object", "properties": {_INPUT: inner}, "required": [_INPUT], **definitions}
