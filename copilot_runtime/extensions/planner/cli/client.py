"""A client of the plan routes of a running server."""

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from urllib.parse import quote, urlencode

from copilot_runtime.agui.outcome import decode_refusal
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_object,
    as_objects,
    as_optional_text,
    get_text,
)
from copilot_runtime.cli.agent_client import find_sign_in_hint, parse_header, parse_url
from copilot_runtime.cli.options import LOCAL_URL
from copilot_runtime.http.client import Exchange, Upstream

_OK, _NOTHING_MORE, _MISSING = 200, 204, 404
_PREFIX = "ck-"
_MIN_ID = 4
"""Minimum characters of an abbreviated id, without `ck-`."""
_MAX_PLANS = 100_000
"""Maximum plans that are searched for an abbreviated id."""
_PAGE = 200
_ID = b"id: "
"""The field of a server-sent event that has the number of an entry."""
_END_TIMEOUT = 10.0
"""Maximum seconds to wait for the end of a stopped plan."""


class PlanClient:
    """Reads, stops, retries and answers plans over HTTP.

    All methods raise `NetworkError` if the server cannot be reached, has no planner, or refuses the
    request.

    Args:
        url: The URL that `<CopilotKit runtimeUrl>` gets.
        headers: Lines such as `Name: value`, sent with each request.
    """

    def __init__(self, url: str, headers: Sequence[str] = ()) -> None:
        self.url = parse_url(url).rstrip("/")
        self._headers = dict(map(parse_header, headers))
        self._options = _build_options(url, headers)
        self._upstream = Upstream("Runtime", idle_timeout=60, max_retries=0)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._upstream.aclose()

    def build_command(self, *arguments: str) -> str:
        """Return a `plans` command for the same server, without the values of headers."""
        return shlex.join(("copilot-runtime", "plans", *arguments, *self._options))

    def explain_loss(self, error: NetworkError, plan_id: str) -> NetworkError:
        """Return the error for a connection that was lost while a plan was watched."""
        if error.status_code != NetworkError.status_code:  # it answered, and refused
            return error
        return NetworkError(
            f"The server of the plan went away. {error.message}",
            hint="The plan goes on when a server with the same planner.store is back: "
            + self.build_command("watch", plan_id),
        )

    async def list_plans(self, values: Mapping[str, str], limit: int) -> Sequence[JsonObject]:
        """Return summaries of plans, newest first."""
        found: list[JsonObject] = []
        before = ""
        while True:
            page = {**values, "limit": str(min(limit - len(found), _PAGE)), "before": before}
            query = urlencode({name: value for name, value in page.items() if value})
            answer = await self._request("GET", f"?{query}")
            found += as_objects(answer.get("plans"))
            before = as_optional_text(answer.get("next")) or ""
            if not before or len(found) >= limit:
                return found

    async def get(self, plan_id: str) -> JsonObject:
        """Return the JSON of a plan."""
        return await self._request("GET", f"/{_quote(plan_id)}")

    async def find(self, beginning: str) -> JsonObject:
        """Return the plan with an id, or with an unambiguous prefix of it, with or
        without `ck-`.
        """
        try:
            return await self.get(beginning)
        except NetworkError as error:
            if error.status_code != _MISSING or len(beginning.removeprefix(_PREFIX)) < _MIN_ID:
                raise
            ids = [get_text(plan, "id") for plan in await self.list_plans({}, _MAX_PLANS)]
            found = [id for id in ids if id.startswith((beginning, _PREFIX + beginning))]
            if not found:
                raise
            if len(found) > 1:
                raise NetworkError(
                    f"{beginning!r} is the beginning of {len(found)} plans, such as {found[0]} "
                    f"and {found[1]}. Write more of the id."
                ) from None
            return await self.get(found[0])

    async def get_output(self, plan_id: str) -> str:
        """Return the complete output of a plan, which `get` shortens."""
        return get_text(await self._request("GET", f"/{_quote(plan_id)}/tasks/0"), "output")

    async def touch(
        self, verb: str, plan_id: str, task_id: str = "", body: Mapping[str, str] | None = None
    ) -> JsonObject:
        """Stop, retry or answer a task or the whole plan; return the plan."""
        task = f"/tasks/{_quote(task_id)}" if task_id else ""
        return await self._request("POST", f"/{_quote(plan_id)}{task}/{verb}", body)

    async def follow(self, plan_id: str) -> AsyncGenerator[JsonObject, None]:
        """Yield the plan, and again after each event, until it ends."""
        plan = await self.get(plan_id)
        yield plan
        after = plan.get("number") or 0
        url = f"{self.url}/plans/{_quote(plan_id)}/events?after={after}"
        headers = {**self._headers, "accept": "text/event-stream"}
        async with Exchange(self._upstream, "GET", url, None, headers) as response:
            if response.status == _NOTHING_MORE:
                return
            if response.status != _OK:
                raise self._explain(response.status, await response.text())
            tail = b""
            async for block in response:
                text = tail + block
                tail = text[-len(_ID) + 1 :]
                if _ID in text:  # chunks of an assistant's text have no id
                    tail = b""
                    yield await self.get(plan_id)
        yield await self.get(plan_id)

    async def wait_for_end(self, plan_id: str) -> JsonObject:
        """Return a stopped plan when it has ended, or its last state after a timeout."""
        plan: JsonObject = {}
        try:
            async with asyncio.timeout(_END_TIMEOUT), aclosing(self.follow(plan_id)) as pictures:
                async for plan in pictures:
                    if plan.get("ended_at"):
                        break
        except TimeoutError:
            pass
        return plan

    async def _request(
        self, method: str, path: str, body: Mapping[str, str] | None = None
    ) -> JsonObject:
        headers = {**self._headers, "content-type": "application/json"}
        data = dumps(body or {}) if method == "POST" else None
        url = f"{self.url}/plans{path}"
        async with Exchange(self._upstream, method, url, data, headers) as response:
            text = await response.text()
        if response.status != _OK:
            raise self._explain(response.status, text)
        try:
            return as_object(loads(text))
        except ValueError:
            raise self._explain(response.status, text) from None

    def _explain(self, status: int, text: bytes) -> NetworkError:
        """Return the error for a failed response, with the server's reason if it gives one."""
        refusal = decode_refusal(text)
        if refusal is None or refusal.message.startswith("There is nothing at"):
            return NetworkError(
                f"{self.url} has no plans: it answered {status}.",
                hint="The URL is the one that <CopilotKit runtimeUrl> gets, and the server needs "
                "the setting planner.name.",
            )
        hint = find_sign_in_hint(status, self._headers)
        return NetworkError(refusal.message, status_code=status, hint=hint)


def _build_options(url: str, headers: Sequence[str]) -> Sequence[str]:
    """Return the options with which a command reaches the same server with the same headers."""
    is_usual = url in (LOCAL_URL, os.environ.get("COPILOT_URL"))
    names = [header.partition(":")[0].strip() for header in headers]
    return [
        *(() if is_usual else ("--url", url)),
        *(part for name in names for part in ("-H", f"{name}: …")),
    ]


def _quote(part: str) -> str:
    return quote(part, safe="")
