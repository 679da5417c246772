"""An adapter that tries several adapters in order until one answers.

>>> adapter = FallbackAdapter(OpenAIAdapter(max_retries=0), AnthropicAdapter("claude-sonnet-4-5"))
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.adapters.errors import redact_error
from copilot_runtime.adapters.media.filter import is_about_media
from copilot_runtime.adapters.media.results import has_files
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint, SupportsStream
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.events import (
    Custom,
    Event,
    Events,
    Raw,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    NetworkError,
    PaymentRequired,
    Refused,
    ToolsRefused,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import set_endpoint

logger = logging.getLogger(__name__)

_NO_CONTENT = (
    *(Custom, Raw, Usage),
    *(ReasoningStart, ReasoningSignature, ReasoningEnd, TextMessageStart, TextMessageEnd),
)
"""Events without content: buffered, and discarded if the adapter fails before the first content."""


class FallbackAdapter(Adapter):
    """Sends each request to one adapter after the other until one starts to answer.

    The next adapter is tried if one fails before its first content, and only for a `NetworkError`
    (transient: no connection, overload, rate limit, timeout), if the account has no credit left, if
    the model takes no tools or not the files of the request, or after an error of the types in
    `also`. Any other invalid request would fail with every adapter.
    Adapters retry by themselves first: with `max_retries=0` the next one is tried at once. A
    `model` in the request is sent to the adapters with that model only, which are tried first; the
    others use their own.

    Args:
        adapters: The adapters in the order in which they are tried.
        weights: A weight for each adapter, by which a random order is drawn for each request: of
            two with the weights 9 and 1, the second is the first to be tried for every tenth
            request; None: the order of `adapters`.
        by_agent: Agent → the adapter for its requests, which may be a FallbackAdapter.
        also: Further types of errors after which the next adapter is tried, such as
            `AuthenticationFailed`.
        seed: The seed of the random order; None: a random one.

    Raises:
        ConfigurationFailed: There is not one weight greater than zero for each adapter.
    """

    def __init__(
        self,
        *adapters: SupportsStream,
        weights: Sequence[float] | None = None,
        by_agent: Mapping[str, SupportsStream] | None = None,
        also: tuple[type[CopilotError], ...] = (),
        seed: int | None = None,
    ) -> None:
        self.adapters = [complete(Adapter, adapter) for adapter in adapters]
        self.by_agent = {
            name: complete(Adapter, adapter) for name, adapter in (by_agent or {}).items()
        }
        self._weights = _check_weights(adapters, weights)
        self._passing = (NetworkError, PaymentRequired, ToolsRefused, *also)
        self._random = random.Random(seed)  # noqa: S311 - spreads load, guards nothing

    def check(self, run: RunInput) -> None:
        """Check the run with each adapter that may answer it, and raise their errors."""
        for adapter in self._for_agent(run.agent):
            adapter.check(run)

    async def stream(self, request: ChatRequest) -> Events:
        """Try each adapter until one answers. Raises the last error if none does."""
        adapters = self._order(request)
        for adapter in adapters:
            pending: list[Event] | None = []
            own_request = _adapt_request(adapter, request)
            if request.span.is_recording:
                endpoint = adapter.endpoint(own_request)
                set_endpoint(request.span, endpoint.provider, endpoint.model, endpoint.url)
            try:
                async with aclosing(adapter.stream(own_request)) as events:
                    async for event in events:
                        if pending is None:
                            yield event
                        elif _has_no_content(event):
                            pending.append(event)
                        else:
                            waiting, pending = pending, None
                            for earlier in waiting:
                                yield earlier
                            yield event
            except CopilotError as error:
                if pending is None or adapter is adapters[-1] or not self._passes(error, request):
                    raise
                redact_error(error, request.instructions)
                if request.budget is not None:
                    await request.budget.repeat_request()
                request.span.add_event(semconv.EVENT_RETRY, {semconv.ERROR_TYPE: error.code})
                logger.warning("%s; asking the next: %s", _describe(adapter), error)
                continue
            for earlier in pending or ():
                yield earlier
            return

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return the endpoint of the first adapter; `stream` updates the span at each attempt."""
        adapter = self._for_agent(request.agent)[0]
        return adapter.endpoint(_adapt_request(adapter, request))

    def find_failing_checks(self) -> Sequence[str]:
        """Return the failing checks of all adapters but `provider`: another one answers."""
        found = (check for adapter in self._all() for check in adapter.find_failing_checks())
        return [check for check in found if check != "provider"]

    async def aclose(self) -> None:
        """Close all adapters."""
        closing = [convert_exits(adapter.aclose()) for adapter in self._all()]
        results = await asyncio.gather(*closing, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    def _passes(self, error: CopilotError, request: ChatRequest) -> bool:
        """Return whether the next adapter may answer after this error."""
        if isinstance(error, self._passing):
            return True
        is_about_files = is_about_media(error) and not isinstance(error, Refused)
        return is_about_files and any(map(has_files, request.messages))

    def _all(self) -> Sequence[Adapter]:
        return [*{id(a): a for a in (*self.adapters, *self.by_agent.values())}.values()]

    def _for_agent(self, agent: str | None) -> Sequence[Adapter]:
        own = self.by_agent.get(agent) if agent else None
        return self.adapters if own is None else [own]

    def _order(self, request: ChatRequest) -> Sequence[Adapter]:
        adapters = self._for_agent(request.agent)
        if self._weights is not None and adapters is self.adapters:
            # each takes a random time, the shorter the greater its weight: the first to come in
            times = [self._random.expovariate(weight) for weight in self._weights]
            adapters = [adapters[at] for at in sorted(range(len(times)), key=times.__getitem__)]
        if model := request.parameters.model:
            adapters = sorted(adapters, key=lambda adapter: _model_of(adapter) != model)
        return adapters


def _check_weights(
    adapters: Sequence[SupportsStream], weights: Sequence[float] | None
) -> list[float] | None:
    if not adapters:
        raise ConfigurationFailed("A FallbackAdapter needs at least one adapter.")
    if weights is None:
        return None
    if len(weights) != len(adapters) or not all(weight > 0 for weight in weights):
        raise ConfigurationFailed(
            f"There are {len(adapters)} adapters and the weights {list(weights)!r}.",
            hint="Give each adapter a weight greater than zero.",
        )
    return list(weights)


def _has_no_content(event: Event) -> bool:
    if isinstance(event, TextMessageContent | ReasoningContent):
        return not event.content
    return isinstance(event, _NO_CONTENT)


def _adapt_request(adapter: Adapter, request: ChatRequest) -> ChatRequest:
    """Return the request without a model that only another provider has."""
    if request.parameters.model in (None, _model_of(adapter)):
        return request
    return replace(request, parameters=replace(request.parameters, model=None))


def _model_of(adapter: Adapter) -> str | None:
    return getattr(adapter, "model", None)


def _describe(adapter: Adapter) -> str:
    return f"{type(adapter).__name__}({_model_of(adapter) or ''})"
