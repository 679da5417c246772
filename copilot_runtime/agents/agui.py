"""Runs a remote agent over AG-UI: pydantic-ai, LangGraph, CrewAI, or a custom one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

from copilot_runtime.adapters.error_classes import DEFAULT_STATUS, classify
from copilot_runtime.adapters.provider_errors import (
    decode_body,
    find_error,
    read_codes,
    read_error_message,
    read_sentence,
    shorten,
)
from copilot_runtime.agents.forwarding import (
    describe_actions,
    forward_headers,
    map_network_error,
    map_refusal,
    read_refusal,
    redact,
)
from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.agui.messages import encode_messages
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.agui.parts import PROTOCOL_VERSION
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import ActivityMessage
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.errors import CopilotError, IncompleteStream, NetworkError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import as_optional_text, parse_text
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.http.client import StreamResponse, Upstream
from copilot_runtime.http.errors import get_origin, parse_url
from copilot_runtime.http.sse import PAYLOADS_AT_ONCE, SSEDecoder
from copilot_runtime.telemetry.span import inject_context

_MAX_REASON = 2_000
_UNREADABLE = 422
"""The status of a request that fails validation, before the agent has acted."""
_REDIRECTS = (307, 308)
"""The redirects that preserve method and body, for example to add a trailing slash."""
_MAX_REDIRECTS = 3
_NEXT_RUN_TIMEOUT = 0.25
"""Seconds after the end of a run in which another one may start in the same stream.

The client sees the end of the run so much later if the agent leaves its stream open.
"""

logger = logging.getLogger(__name__)


class AguiAgent(Agent):
    """Sends runs to the agent at `url` and yields its events.

    Requests carry the headers that may be forwarded; `headers` replace them. With `actions`, the
    agent may call the actions of this server; its own tools then need other names. Times are in
    seconds; `idle_timeout` is the longest silence of the agent, and a fifth of the longest time
    with comments alone. A run may have acted before it failed, so by default nothing is repeated:
    `max_retries` is 0. Requests are those of AG-UI 1.0.
    A `legacy` agent gets them without the version, and with parts and results in their older form;
    so does an agent that has refused the newer form with status 422 and accepted the older one.
    Raises `ConfigurationFailed` for an invalid `url`.
    """

    provider = "ag_ui"

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        description: str = "",
        actions: bool = True,
        connect_timeout: float = 10.0,
        idle_timeout: float = 300.0,
        max_retries: int = 0,
        legacy: bool = False,
    ) -> None:
        parse_url(url, "agent's URL", "It looks like https://agents.example.com/weather.")
        REDACTOR.learn({"url": url, "headers": headers})
        self._origin = get_origin(url)
        self.url = url
        self.description = description
        self._actions = actions
        self._legacy = legacy
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # a compressing proxy would hold events back
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._upstream = Upstream(
            "Agent",
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
        )

    async def run(self, run: RunInput) -> Events:
        """Send the run and yield the agent's events as they come.

        On cancellation or early close, the connection is closed. Raises `AgentFailed`, `Cancelled`
        if the run was stopped on the remote server, `NetworkError`, `RunStalled` after
        `idle_timeout`, `IncompleteStream`, and the error of a status other than 2xx.
        """
        name, state = run.agent_name, run.agent_input.state
        if not self._actions:
            run = replace(run, actions=[one for one in run.actions if one.in_browser])
        frames, incoming = SSEDecoder(), EventDecoder(name, state, run)
        loop, deadline = asyncio.get_running_loop(), 0.0
        silent_since: float | None = None
        before: str | None = None
        try:
            reply = await self._send(run, state)
            try:
                if not 200 <= reply.status < 300:
                    raise await self._refusal(name, reply)
                before = "the run ended"
                blocks = aiter(reply)
                while not incoming.ended:
                    if incoming.finished:
                        deadline = deadline or loop.time() + _NEXT_RUN_TIMEOUT
                        block = await _read_late(blocks, deadline)
                    else:
                        block, deadline = await anext(blocks, None), 0.0
                    if block is None:
                        for event in incoming.read(frames.finish()):
                            yield event
                        reply.finished = incoming.finished
                        break
                    payloads = frames.feed(block)
                    silent_since = None if payloads else reply.check_silence(silent_since)
                    while len(payloads) > PAYLOADS_AT_ONCE and not incoming.ended:
                        for event in incoming.read(payloads[:PAYLOADS_AT_ONCE]):
                            yield event
                        del payloads[:PAYLOADS_AT_ONCE]
                        await asyncio.sleep(0)  # others run, and the run can be stopped
                    if not incoming.ended:
                        for event in incoming.read(payloads):
                            yield event
                if incoming.ended:
                    # an agent that sends invalid events is disconnected, so that it stops
                    reply.finished = not isinstance(incoming.failure, IncompleteStream)
            finally:
                reply.release()
        except NetworkError as error:
            if not incoming.ended:  # then the answer is whole, whatever follows
                raise map_network_error(name, error, before=before) from error
        for event in incoming.finish():
            yield event
        if incoming.failure is not None:
            raise incoming.failure
        if not incoming.ended:
            sent = incoming.untyped or decode_body(frames.other_text)
            raise self._read_error(name, sent) or _missing_end_error(name, frames)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _send(self, run: RunInput, state: Any) -> StreamResponse:
        """Send a run; if the agent refuses AG-UI 1.0, send it again in the older form."""
        if not self._legacy:
            reply = await self._post(run, state, legacy=False)
            if reply.status != _UNREADABLE:
                return reply
            reply.release()
        reply = await self._post(run, state, legacy=True)
        if not self._legacy and 200 <= reply.status < 300:
            logger.info("The agent at %s uses an AG-UI version before 1.0", self._origin)
            self._legacy = True
        return reply

    async def _post(self, run: RunInput, state: Any, *, legacy: bool) -> StreamResponse:
        """Send a run to the agent, and follow redirects to the same origin."""
        body = dumps(run_agent_input(run, state, legacy=legacy))
        headers = {**forward_headers(run.headers), **inject_context(run.span), **self._headers}
        reply = await self._upstream.open("POST", self.url, body, headers)
        url, left = self.url, _MAX_REDIRECTS
        while left and (url := _find_redirect(url, reply)) is not None:
            reply.release()
            reply = await self._upstream.open("POST", url, body, headers)
            left -= 1
        return reply

    async def _refusal(self, agent: str, reply: StreamResponse) -> CopilotError:
        """Return the error for a status that is not 2xx; the agent's text is for the log."""
        body = await read_refusal(reply)
        text = body.decode(errors="replace").strip()
        if (place := reply.headers.get("location")) and 300 <= reply.status < 400:
            text = f"it redirects to {place!r}, which is not followed. {text}".strip()
        reason = redact(text, _MAX_REASON)
        return map_refusal(
            agent,
            reply.status,
            f"The agent at {self._origin} responded with HTTP {reply.status}: {reason} "
            "Are its URL and headers right?",
            redact(read_error_message(body), _MAX_REASON),
        )

    def _read_error(self, agent: str, sent: Any) -> CopilotError | None:
        """Return the error that an agent has sent in place of its events, or behind them."""
        if (error := find_error(sent)) is None:
            return None
        reason = redact(shorten(read_sentence(error)), _MAX_REASON)
        found, status = classify(None, read_codes(error), reason)
        kind = AgentFailed if status == DEFAULT_STATUS else found.error
        return kind(f"The agent {agent!r} failed: {reason}", hint=f"The agent is {self._origin}.")


async def _read_late(blocks: AsyncIterator[bytes], deadline: float) -> bytes | None:
    """Return the next block after the end of a run, or `None` if none comes before the deadline.

    Another run may follow in the same stream, but some agents just leave it open.
    """
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(blocks, None)
    except (TimeoutError, NetworkError):
        return None


def _find_redirect(url: str, reply: StreamResponse) -> str | None:
    """Return the target of a redirect, or `None` without one or for another origin.

    Another server must get neither the credentials nor the conversation.
    """
    place = reply.headers.get("location")
    if reply.status not in _REDIRECTS or not place:
        return None
    try:
        target = urljoin(url, place)
        return target if get_origin(target) == get_origin(url) else None
    except ValueError:  # no address
        return None


def run_agent_input(run: RunInput, state: Any, *, legacy: bool = False) -> dict[str, Any]:
    """Return the RunAgentInput, its keys as `@ag-ui/client` sends them."""
    parent = run.extensions.get("parentRunId")
    resume, command = encode_resumes(run.resume)
    return {
        "threadId": run.private_thread_id,
        "runId": run.run_id,
        **({} if legacy else {"protocolVersion": PROTOCOL_VERSION}),
        **({"parentRunId": parent} if isinstance(parent, str) else {}),
        "state": state,
        # activities are only for display; clients omit them, too
        "messages": encode_messages(
            [message for message in run.messages if not isinstance(message, ActivityMessage)],
            legacy=legacy,
        ),
        "tools": describe_actions(
            action
            for action in run.actions
            if action.agent is None and action.available != "disabled"
        ),
        "context": [{"description": item.description, "value": item.value} for item in run.context],
        "forwardedProps": {**_build_v1_properties(run), **run.properties, **command},
        **({"resume": resume} if resume else {}),
    }


def _build_v1_properties(run: RunInput) -> dict[str, Any]:
    """Return the agent's configuration and node, as a v1 client sends them."""
    config = {"config": dict(run.agent_input.config)} if run.agent_input.config else {}
    return {**config, "nodeName": run.node} if run.node else config


def encode_resumes(resumes: Sequence[Resume]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the answers to interrupts, and the one to a legacy interrupt, which has no id."""
    answers: list[dict[str, Any]] = []
    command: dict[str, Any] = {}
    for resume in resumes:
        id, payload = resume.interrupt_id, resume.payload
        if id is None:
            id = _parse_interrupt_id(resume.value)
            payload = resume.response if payload is None else payload
        if id is None:
            event = parse_text(resume.value)
            command = {"command": {"resume": resume.response, "interruptEvent": event}}
            continue
        extra = {} if payload is None else {"payload": payload}
        answers.append({"interruptId": id, "status": resume.status, **extra})
    return answers, command


def _parse_interrupt_id(value: str) -> str | None:
    """Return the id in an interrupt that a v1 client sends back as it got it."""
    interrupt = parse_text(value)
    id = interrupt.get("id") if isinstance(interrupt, dict) and "reason" in interrupt else None
    return as_optional_text(id)


def _missing_end_error(name: str, frames: SSEDecoder) -> IncompleteStream:
    if frames.is_event_stream:
        return IncompleteStream("Run ended without emitting a terminal event")
    return IncompleteStream(
        f"The agent {name!r} returned a response that is not an event stream.",
        hint="Is its URL right?",
    )
