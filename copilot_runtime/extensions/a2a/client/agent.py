"""Runs a remote agent over the Agent2Agent protocol (A2A) 1.0 or 0.3."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from time import monotonic

from copilot_runtime.agents.forwarding import (
    Cancellations,
    forward_headers,
    map_network_error,
    map_refusal,
    redact,
)
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import (
    CopilotError,
    IncompleteStream,
    MissingPackage,
    NetworkError,
)
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import as_object, get_text
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.extensions.generative_ui.a2ui.catalog import find_catalog_id
from copilot_runtime.http.client import Upstream
from copilot_runtime.http.errors import parse_url
from copilot_runtime.telemetry.span import inject_context
from copilot_runtime.threads.checkpoints import AgentCheckpoints

try:
    import httpx
    from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
    from a2a.types import AgentCard, CancelTaskRequest
    from a2a.utils.errors import A2AError
    from google.protobuf.json_format import ParseError

    from copilot_runtime.extensions.a2a.client.card import (
        BINDINGS,
        AnswerTooLarge,
        fetch_card,
        normalize_origin,
        open_client,
    )
    from copilot_runtime.extensions.a2a.client.exchange import (
        TaskExchange,
        find_waiting_task,
        is_known,
    )
    from copilot_runtime.extensions.a2a.client.request import (
        Context,
        ContextLog,
        build_request,
        is_answer,
    )
    from copilot_runtime.extensions.a2a.client.surfaces import choose_extension
    from copilot_runtime.extensions.a2a.client.translate import Translator
except ModuleNotFoundError as error:
    raise MissingPackage("An A2aAgent", "a2a-sdk", "a2a") from error

logger = logging.getLogger(__name__)

_Place = tuple[str, str]
"""The conversation's identifier, and that of its task that waits for input, if any."""

_CARD_TTL = 300.0
"""Seconds for which a card is cached, because agents move and change."""

_CANCEL_TIMEOUT = 5.0
"""Timeout for cancelling a remote task, in seconds."""

_LONGEST_REASON = 2_000

_UNREADABLE = (ParseError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Exceptions of the package for malformed responses."""


class A2aAgent(Agent):
    """Sends the user's messages to the A2A agent at `url`, and yields its answer.

    `url` is the agent's base URL or that of its card. Requests carry the forwarded headers;
    `headers` override them, and only `headers` are sent with the request for the card. A card may
    refer to the origin of `url` or one of `origins`, and no other. Times are in seconds;
    `idle_timeout` is the maximum silence of the agent. Raises `ConfigurationFailed` if `url` is
    invalid, and `MissingPackage` without the extra `a2a`.
    """

    provider = "a2a"

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        description: str = "",
        origins: Sequence[str] = (),
        connect_timeout: float = 10.0,
        idle_timeout: float = 300.0,
    ) -> None:
        hint = "It looks like https://agents.example.com/weather."
        for one in (url, *origins):
            parse_url(one, "agent's URL", hint)
        self.url = url.rstrip("/")
        self.description = description
        self._origins = frozenset(map(normalize_origin, (url, *origins)))
        REDACTOR.learn({"url": url, "headers": headers})
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._upstream = Upstream(
            "Agent", connect_timeout=connect_timeout, idle_timeout=idle_timeout, max_retries=0
        )
        self._contexts = ContextLog()
        self._checkpoints = AgentCheckpoints()
        self._card: AgentCard | None = None
        self._card_time = 0.0
        self._cancellations = Cancellations()

    async def run(self, run: RunInput) -> Events:
        """Send the user's last messages and yield the events of the answer.

        A task that waits for input continues with the next message of the thread. If the run is
        cancelled or closed early, the remote task is cancelled as well. Raises `AgentFailed`,
        `Cancelled` if the task was cancelled remotely, `AuthenticationFailed`, `NetworkError`,
        `RunStalled` after `idle_timeout`, `IncompleteStream`, `ConfigurationFailed` if the card
        cannot be used, and the error of the status if a request is refused.
        """
        name = run.agent_name
        card = await self._find_card(name)
        context = self._contexts.find(run.user, run.private_thread_id)
        place = await self._load_place(run, context)
        extension = choose_extension([one.uri for one in card.capabilities.extensions])
        request = build_request(run, context, extension)
        if not request.message.parts:  # the conversation has no user message yet
            return
        translator = Translator(name, context, find_catalog_id(run.context) or "")
        call = self._build_call(run, extension)
        try:
            async with open_client(self._upstream) as http:
                client = self._build_client(card, http)
                if context.is_new and any(is_answer(it) for it in run.messages):
                    found = await find_waiting_task(client, call, context.id)
                    context.task_id = request.message.task_id = found
                context.is_new = False
                async with aclosing(TaskExchange(client, call, translator).run(request)) as events:
                    async for event in events:
                        yield event
        except (NetworkError, A2AError, *_UNREADABLE) as error:
            await self._save_place(run, context, place)
            raise self._map_error(name, error, translator) from error
        finally:
            self._contexts.trim()
            if translator.is_resumable:
                await self._cancel(card, call, translator.task_id)
        await self._save_place(run, context, place)
        for event in translator.finish():
            yield event
        if translator.failure is not None:
            raise translator.failure

    async def _load_place(self, run: RunInput, context: Context) -> _Place:
        """Load the conversation's state: the last run may have been on another server."""
        found = await self._checkpoints.find(run)
        if found is not None:
            fields = as_object(loads(found.data))
            context.id = get_text(fields, "context") or context.id
            context.task_id = get_text(fields, "task")
            context.is_new = False
        elif not context.is_new:
            context.task_id = ""
        return context.id, context.task_id

    async def _save_place(self, run: RunInput, context: Context, before: _Place) -> None:
        """Store the waiting task and the agent's context identifier for other servers."""
        place = context.id, context.task_id
        if place == before:
            return
        if place == (run.private_thread_id, ""):  # the default of a server without the stored state
            await self._checkpoints.delete(run)
        else:
            data = dumps({"context": context.id, "task": context.task_id})
            await self._checkpoints.save(run, data)

    async def aclose(self) -> None:
        """Wait at most 5 seconds for cancellations in progress, and close the connections."""
        await self._cancellations.wait()
        await self._upstream.aclose()

    async def _find_card(self, name: str) -> AgentCard:
        """Return the card. Concurrent first runs may each fetch it."""
        if self._card is None or monotonic() - self._card_time > _CARD_TTL:
            self._card = await fetch_card(
                self._upstream, name, self.url, self._headers, self._origins
            )
            self._card_time = monotonic()
        return self._card

    def _build_call(self, run: RunInput, extension: str | None) -> ClientCallContext:
        headers = {**forward_headers(run.headers), **inject_context(run.span), **self._headers}
        headers = {k: v for k, v in headers.items() if not k.startswith(("a2a-", "x-a2a-"))}
        if extension:
            headers["A2A-Extensions"] = extension
        return ClientCallContext(service_parameters=headers)

    def _build_client(self, card: AgentCard, http: httpx.AsyncClient) -> Client:
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[*BINDINGS])
        return ClientFactory(config).create(card)

    def _map_error(self, name: str, error: Exception, translator: Translator) -> CopilotError:
        """Return our error for an exception of the package or the connection."""
        if isinstance(error, AnswerTooLarge):
            return IncompleteStream(
                f"The agent {name!r} sent more at once than is read.", hint=error.hint
            )
        if isinstance(error, NetworkError):
            before = "the task ended" if translator.has_begun else None
            return map_network_error(name, error, before=before)
        reason = redact(str(error), _LONGEST_REASON)
        cause = error.__cause__
        if isinstance(cause, httpx.HTTPStatusError):
            status = cause.response.status_code
            return map_refusal(name, status, f"{self.url} answered with HTTP {status}: {reason}")
        if isinstance(error, A2AError) and is_known(error):
            refusal = f"The agent {name!r} refused the request"
            return AgentFailed(f"{refusal}: {reason}", public=f"{refusal}.")
        return IncompleteStream(
            f"The agent {name!r} sent what cannot be read.",
            hint=f"Is {self.url} the address of an A2A agent? {reason}",
        )

    async def _cancel(self, card: AgentCard, call: ClientCallContext, task_id: str) -> None:
        """Cancel a remote task, in a task that survives the caller's own cancellation."""

        async def cancel() -> None:
            try:
                async with asyncio.timeout(_CANCEL_TIMEOUT), open_client(self._upstream) as http:
                    client = self._build_client(card, http)
                    await client.cancel_task(CancelTaskRequest(id=task_id), context=call)
            except (CopilotError, A2AError, TimeoutError, *_UNREADABLE) as error:
                logger.warning("A task of the agent at %s was not canceled: %r", self.url, error)

        await self._cancellations.run(cancel(), task_id)
