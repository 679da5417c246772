"""Validates a question with an HTTP service while the model already generates the answer."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.api.agent import Stage
from copilot_runtime.api.events import ActionExecutionStart, Event, Events
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import GuardrailRules, RunInput
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    MissingPublicApiKey,
    NetworkError,
    Refused,
    RunStalled,
)
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.http.client import JsonResponse, Upstream

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

KEY_HEADER = "X-CopilotCloud-Public-API-Key"

_MAX_BUFFER = 1000
_DENIED = "The guardrails do not allow this request."


class HttpGuardrail(Stage):
    """A stage that asks `<base_url>/guardrails/validate` whether the client allows a topic.

    The protocol is that of Copilot Cloud: only requests that contain rules and end with a user
    message are sent. Until the verdict arrives, no event reaches the client and no action starts.
    If the service is down, slower than `timeout` seconds or returns an invalid response, the
    request is refused, or with `fail_open` accepted. `http_client` is an `httpx.AsyncClient` of the
    application; it is not closed here.
    """

    honours_client = True

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        fail_open: bool = False,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        self.url = f"{base_url.rstrip('/')}/guardrails/validate"
        REDACTOR.learn({"url": base_url, "headers": headers})
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.timeout = timeout
        self.fail_open = fail_open
        self._upstream = Upstream(
            "Guardrails", idle_timeout=timeout, max_retries=0, http_client=http_client
        )

    def __call__(self, events: Events, run: RunInput) -> Events:
        question = _build_request(run)
        return events if question is None else self._hold_until_verdict(events, run, question)

    def check(self, run: RunInput) -> None:
        """Raise `MissingPublicApiKey` for a request with rules but without a key."""
        if run.rules is not None:
            self._headers(run)

    async def aclose(self) -> None:
        await self._upstream.aclose()

    async def _hold_until_verdict(
        self, events: Events, run: RunInput, question: dict[str, Any]
    ) -> Events:
        """Buffer the agent's events until the verdict, then pass them on."""
        async with aclosing(events):
            verdict = asyncio.create_task(self._validate(run, question), name="guardrails")
            step = asyncio.create_task(_next(events))
            buffer: list[Event] = []
            try:
                while not verdict.done():
                    await asyncio.wait({verdict, step}, return_when=asyncio.FIRST_COMPLETED)
                    if not step.done() or not _may_continue(step, buffer):
                        break
                    buffer.append(cast(Event, step.result()))
                    step = asyncio.create_task(_next(events))
                await verdict
                for event in buffer:
                    yield event
                last = await step
            finally:
                verdict.cancel()
                step.cancel()
                # the agent's task must end before its generator can be closed
                await asyncio.gather(verdict, step, return_exceptions=True)
            if last is not None:
                yield last
                async for event in events:
                    yield event

    async def _validate(self, run: RunInput, question: dict[str, Any]) -> None:
        """Raise `Refused` for a denied question, or an error of the service."""
        headers = self._headers(run)
        try:
            async with asyncio.timeout(self.timeout):
                reply = await self._upstream.request_json("POST", self.url, question, headers)
            if (reason := _parse_denial(reply)) is not None:
                raise Refused(reason)
        except Refused:
            raise
        except TimeoutError:
            stalled = RunStalled(
                f"The guardrails did not answer within {self.timeout:g} seconds.",
                hint=f"Check {self.url}, or give the guardrail more time.",
            )
            self._raise_unless_open(stalled)
        except CopilotError as error:
            self._raise_unless_open(error)

    def _raise_unless_open(self, error: CopilotError) -> None:
        if not self.fail_open:
            raise error
        logger.warning("The guardrails were skipped: %s %s", error.message, error.hint or "")

    def _headers(self, run: RunInput) -> Mapping[str, str]:
        name = KEY_HEADER.lower()
        key = run.headers.get(name) or self.headers.get(name)
        if not key:
            raise MissingPublicApiKey(
                f"{KEY_HEADER} header is required",
                hint="Give <CopilotKit> a publicApiKey, or no guardrails.",
            )
        return {**self.headers, name: key}


async def _next(events: Events) -> Event | None:
    return await convert_exits(anext(events, None))  # in a task of its own


def _may_continue(step: "asyncio.Task[Event | None]", buffer: list[Event]) -> bool:
    """Return whether the agent may take its next step before the verdict."""
    if step.exception() is not None or step.result() is None or len(buffer) >= _MAX_BUFFER:
        return False
    # an action must not run for a question that may yet be denied
    return not isinstance(step.result(), ActionExecutionStart)


def _build_request(run: RunInput) -> dict[str, Any] | None:
    """Return the request body for the service, or None if there are no rules."""
    last = run.messages[-1] if run.messages else None
    if run.rules is None or not isinstance(last, TextMessage) or last.role != "user":
        return None
    rules: GuardrailRules = run.rules
    return {
        "input": last.content,
        "validTopics": list(rules.allow),
        "invalidTopics": list(rules.deny),
        "messages": [
            {"role": message.role, "content": message.content}
            for message in run.messages[:-1]
            if isinstance(message, TextMessage) and message.role in ("user", "assistant")
        ],
    }


def _parse_denial(reply: JsonResponse) -> str | None:
    """Return the reason why the question is denied, or None if it is allowed."""
    if reply.status in (401, 403):
        raise AuthenticationFailed(
            "The guardrails refused the public API key.",
            hint=f"The service answered {reply.status}.",
        )
    match reply.status, reply.body:
        case 200, {"status": "allowed"}:
            return None
        case 200, {"status": "denied", "reason": str(reason)} if reason:
            return reason
        case 200, {"status": "denied"}:
            return _DENIED
        case status, body:
            raise NetworkError(
                "The guardrails gave no verdict.",
                hint=f"The service answered {status}: {str(cast(object, body))[:200]!r}.",
            )
