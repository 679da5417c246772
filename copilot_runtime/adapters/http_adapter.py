"""The base class of adapters over HTTP: keys, options, connections and the steps of a request."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypedDict

from copilot_runtime.adapters.capabilities import CapabilityFilter, UnsupportedPolicy
from copilot_runtime.adapters.errors import ProviderHealth, find_delay
from copilot_runtime.adapters.media.filter import MediaFilter, OversizedImages
from copilot_runtime.adapters.streaming import ProviderRequest, stream_response
from copilot_runtime.adapters.toolset import Toolset
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.argument_checks import explain_names
from copilot_runtime.api.events import Event, Events
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.http.client import Upstream

ApiKey = str | Callable[[], str | Awaitable[str]]


async def resolve_api_key(key: ApiKey | None, provider: str) -> str:
    """Return the key, or an empty string if there is none.

    Raises `ConfigurationFailed` if the key contains characters that no key has.
    """
    found = key() if callable(key) else key
    if inspect.isawaitable(found):
        found = await found
    found = (found or "").strip()  # keys from files end in a newline
    if not found.isascii() or not found.isprintable():
        raise ConfigurationFailed(
            f"The API key for {provider} contains invalid characters.",
            hint="Check api_key, token and the environment for a wrong value.",
        )
    REDACTOR.add_key(found)
    return found


class HTTPOptions(TypedDict, total=False):
    """The keyword arguments that all adapters over HTTP take. Times are in seconds."""

    headers: Mapping[str, str] | None
    """Sent with each request, in place of the adapter's own headers of the same names."""
    unsupported: UnsupportedPolicy
    """`"warn"` omits a parameter that the model does not support and yields a `Custom` event
    named `warning`; `"refuse"` raises `ConfigurationFailed`."""
    connect_timeout: float
    """The timeout for a connection; 10 by default."""
    first_token_timeout: float | None
    """The timeout for the first event, retries included; no limit by default."""
    idle_timeout: float
    """The longest silence of the provider, before and within its response; 120 by default."""
    max_retries: int
    """How often a request that failed before its first event is retried; 2 by default."""


class HTTPAdapter(Adapter, ABC):
    """An adapter that sends each chat request to its provider as one HTTP request.

    `adapter` is its name in the table of capabilities, `service` is the provider's name in error
    messages. A subclass implements `_prepare`.
    """

    @explain_names()
    def __init__(
        self,
        model: str,
        *,
        adapter: str,
        service: str,
        accept: str = "text/event-stream, application/json",
        headers: Mapping[str, str] | None = None,
        unsupported: UnsupportedPolicy = "warn",
        connect_timeout: float = 10.0,
        first_token_timeout: float | None = None,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
    ) -> None:
        self.model = model
        self.unsupported: UnsupportedPolicy = unsupported
        self.first_token_timeout = first_token_timeout
        self._adapter = adapter
        self._service = service
        self._health = ProviderHealth()
        self._media = MediaFilter(adapter, service)
        self._toolset = Toolset(service, adapter)
        REDACTOR.learn({"headers": headers})
        self._headers = {
            "content-type": "application/json",
            "accept": accept,
            "accept-encoding": "identity",  # a compressing proxy would hold chunks back
            "user-agent": "copilot-runtime",
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._upstream = Upstream(
            service,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
            find_delay=find_delay,
        )

    def __init_subclass__(cls) -> None:
        """Add the shared options to the signature: `help` shows it, and `copilot.yml` is checked
        against it."""
        _, *own = inspect.signature(cls.__init__).parameters.values()
        shared = inspect.signature(HTTPAdapter).parameters
        own = [one for one in own if one.kind is not one.VAR_KEYWORD]
        options = [shared[name] for name in HTTPOptions.__annotations__]
        cls.__signature__ = inspect.Signature([*own, *options])

    def stream(self, request: ChatRequest) -> Events:
        """Send the request to the model; yield the events of its response as they arrive.

        Warnings about omitted parameters come first. Closing the generator early closes the
        connection. Raises `CopilotError`: `ConfigurationFailed` and `Misuse` for a request that
        cannot be sent, `NetworkError` or the error of the response otherwise.
        """
        if request.actions:
            return self._toolset.stream(request, self._stream)
        return self._stream(request)

    def find_failing_checks(self) -> Sequence[str]:
        """Return `provider` if the latest requests have failed, and the tools that are left out."""
        failing = ("provider",) if self._health.is_failing else ()
        return (*failing, *self._toolset.list_missing())

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return the provider, the model and the URL of a request."""
        model = request.parameters.model or self.model
        try:
            url = self._find_url(model)
        except CopilotError:  # such as that of a region that is missing: the request raises it
            url = ""
        return ModelEndpoint(self._name_provider(), model, url)

    def _name_provider(self) -> str:
        """Return the provider's name in `ADAPTERS`."""
        return self._adapter

    def _find_url(self, model: str) -> str:
        """Return the URL of requests, or an empty string if it is unknown."""
        del model
        return ""

    async def aclose(self) -> None:
        """Close the connections. A `client` of the application's own stays open."""
        await self._upstream.aclose()

    def _stream(self, request: ChatRequest) -> Events:
        return stream_response(
            partial(self._prepare_request, request),
            first_token_timeout=self.first_token_timeout,
            span=request.span,
            budget=request.budget,
            health=self._health,
            leave_out=partial(self._leave_out_media, request),
        )

    async def _prepare_request(
        self, request: ChatRequest
    ) -> tuple[ProviderRequest, Sequence[Event]]:
        """Return the request to the provider, and the warnings about omitted parameters."""
        model = self._choose_model(request)
        while True:
            capabilities = CapabilityFilter(
                self._adapter, self._service, model, self.unsupported, self._media
            )
            try:
                return await self._prepare(request, model, capabilities), capabilities.warnings
            except OversizedImages as found:
                await self._media.shrink(found.images)

    def _leave_out_media(self, request: ChatRequest, error: CopilotError) -> bool:
        """Return whether the next `_prepare` of this request leaves out files of the error."""
        return self._media.leave_out(request.messages, self._choose_model(request), error)

    def _choose_model(self, request: ChatRequest) -> str:
        if model := request.parameters.model or self.model:
            return model
        raise ConfigurationFailed(
            f"No model of {self._service} is named.", hint="Pass model to the adapter."
        )

    @abstractmethod
    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        """Return the request to the provider: its URL, body, headers, and the response reader.

        `capabilities` records the parameters that are omitted.
        """
