"""The adapter for chat models and runnables of LangChain, and for functions."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.adapters.added_fields import name_origin
from copilot_runtime.adapters.capabilities import CapabilityFilter, UnsupportedPolicy
from copilot_runtime.adapters.context_window import ContextWindow
from copilot_runtime.adapters.errors import (
    Service,
    build_error,
    find_request_id,
    read_stream_error,
)
from copilot_runtime.adapters.first_token import FirstTokenLimit
from copilot_runtime.adapters.invalid_answers import CONTENT
from copilot_runtime.adapters.langchain.request import (
    PROVIDER,
    LangChainRequest,
    bind_actions,
    build_request,
    set_fields,
)
from copilot_runtime.adapters.langchain.stream import ChunkReader
from copilot_runtime.adapters.media.filter import MediaFilter, OversizedImages
from copilot_runtime.adapters.provider_errors import find_error
from copilot_runtime.adapters.toolset import Toolset
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.events import Event, Events, Usage
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    InvalidAnswer,
    MissingPackage,
    NetworkError,
    RunStalled,
)
from copilot_runtime.http.errors import parse_retry_after

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

Function = Callable[[LangChainRequest], Any]

NAME = "LangChain"

_PROVIDERS = {
    "aws": "bedrock",
    "google_genai": "google",
    "google_vertexai": "vertex",
    "mistralai": "mistral",
}
"""LangChain's packages → the names in `ADAPTERS`, where they differ."""
_ADDRESSES = ("openai_api_base", "azure_endpoint", "anthropic_api_url", "base_url")
"""The attributes of chat models that may contain the address of their service."""


class LangChainAdapter(Adapter):
    """Sends chat requests to a chat model, a runnable, or a function.

    Connections and retries are the model's own.

    Args:
        model: A chat model, which gets tools and parameters too, or its name such as
            `openai:gpt-4o`, for the package `langchain`; a runnable, which gets the messages; or a
            function, sync or async, that gets a `LangChainRequest` and returns text, a message, or
            an iterator of them.
        prompt: Makes the input of a runnable or a chat model; None: it is the messages.
        unsupported: The policy for parameters that the model does not support: see `HTTPOptions`.
        context_tokens: The context window in tokens; None: looked up by the model's name.
        first_token_timeout: How long the first event may take, in seconds; None: any time.
        idle_timeout: How long the model may be silent, in seconds.

    Raises:
        ConfigurationFailed: LangChain has no chat model of that name.
        MissingPackage: A chat model by its name needs a package that is not installed.
    """

    def __init__(
        self,
        model: "Runnable[Any, Any] | Function | str",
        *,
        prompt: Callable[[LangChainRequest], Any] | None = None,
        unsupported: UnsupportedPolicy = "warn",
        context_tokens: int | None = None,
        first_token_timeout: float | None = None,
        idle_timeout: float = 120.0,
    ) -> None:
        self.model: Any = _load_model(model) if isinstance(model, str) else model
        self.prompt = prompt
        self.unsupported: UnsupportedPolicy = unsupported
        self._window = ContextWindow("", context_tokens)
        provider = _find_provider(self.model)
        self._toolset = Toolset(NAME, provider)
        self._media = MediaFilter(provider, NAME if provider == PROVIDER else provider)
        self.first_token_timeout = first_token_timeout
        self.idle_timeout = idle_timeout

    def stream(self, request: ChatRequest) -> Events:
        """Send the request to the model; yield the events of its response as they arrive.

        A chat model is asked again once if its answer is an `InvalidAnswer`.

        Raises:
            RunStalled: The model was silent too long.
            Refused: The provider's filter stopped the answer.
            CopilotError: Another error of the model's client.
        """
        if request.actions:
            return self._toolset.stream(request, self._stream)
        return self._stream(request)

    async def _stream(self, request: ChatRequest) -> Events:
        name = request.parameters.model or _name_of(self.model)
        has_event = False
        while True:
            try:
                async with aclosing(self._ask(request, name)) as events:
                    async for event in events:
                        has_event = True
                        yield event
                return
            except OversizedImages as found:
                await self._media.shrink(found.images)
            except CopilotError as error:
                if has_event or not self._media.leave_out(request.messages, name, error):
                    raise

    async def _ask(self, request: ChatRequest, name: str) -> AsyncGenerator[Event, None]:
        capabilities = CapabilityFilter(PROVIDER, NAME, name, self.unsupported, self._media)
        endpoint = self.endpoint(request)
        origin = name_origin(f"{PROVIDER}.{endpoint.provider}", endpoint.url, name)
        window = await self._window.tokens_for(name, request)
        service = Service(NAME, name, _secret_of(self.model), origin=origin)
        # what a chain or a function does is its own, and may have effects
        is_chat_model = hasattr(self.model, "bind_tools")
        has_event = is_answered = not is_chat_model
        for attempt in count():
            chunks = self._call_model(request, window, capabilities, origin)
            if not attempt:
                for warning in capabilities.warnings:
                    yield warning
            answer = ChunkReader(request, service)
            try:
                async with aclosing(
                    read_in_time(
                        chunks, answer.feed, NAME, self.first_token_timeout, self.idle_timeout
                    )
                ) as events:
                    async for event in events:
                        if not is_answered:
                            has_event, is_answered = True, type(event) in CONTENT
                        yield event
            except CopilotError:
                raise
            except Exception as error:
                if (mapped := read_client_error(error, service)) is None:
                    raise
                raise mapped from error
            finally:
                if request.span.is_recording:
                    answer.describe(request.span)
            ending = answer.end()
            is_answered = is_answered or not CONTENT.isdisjoint(map(type, ending))
            failure = answer.failure or (None if is_answered else answer.find_empty_answer())
            is_invalid = isinstance(failure, InvalidAnswer)
            for event in ending:
                if not is_invalid or isinstance(event, Usage):
                    yield event
            if failure is None:
                return
            if has_event or attempt or not is_invalid:
                raise failure

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return the provider, the model and the URL of a request, as far as they are known."""
        urls = (getattr(self.model, name, None) for name in _ADDRESSES)
        url = next((one for one in urls if isinstance(one, str)), "")
        model = request.parameters.model or _name_of(self.model)
        return ModelEndpoint(_find_provider(self.model), model, url)

    def find_failing_checks(self) -> Sequence[str]:
        """Return a sentence for each tool that is left out."""
        return self._toolset.list_missing()

    def _call_model(
        self, request: ChatRequest, window: int, capabilities: CapabilityFilter, origin: str
    ) -> AsyncGenerator[Any, None]:
        """Return the generator of the model's chunks."""
        parameters = capabilities.apply(request.parameters)
        question = build_request(request, parameters, window, capabilities, origin)
        model = self.model
        if not hasattr(model, "astream"):
            return call_function(cast("Function", model), question)
        prompt = self.prompt(question) if self.prompt else question.messages
        config = {"configurable": {"thread_id": request.thread_id}} if request.thread_id else None
        if not hasattr(model, "bind_tools"):
            if question.tools:
                capabilities.omit("calls", "A chain has no tools but its own.")
            return model.astream(prompt, config)
        model = set_fields(model, parameters, capabilities)
        stop = {"stop": [*parameters.stop]} if parameters.stop else {}
        return bind_actions(model, question, capabilities).astream(prompt, config, **stop)


def _find_provider(model: Any) -> str:
    """Return the provider of a chat model: a name in `ADAPTERS`, or that of its package."""
    if "Azure" in type(model).__name__:
        return "azure"
    module, _, package = type(model).__module__.partition(".")[0].partition("langchain_")
    if module or package in ("", "core"):
        return PROVIDER
    return _PROVIDERS.get(package, package)


def _load_model(name: str) -> Any:
    """Return the chat model of that name, as the package `langchain` makes it."""
    try:
        module = import_module("langchain.chat_models")
    except ImportError as error:
        raise MissingPackage("A chat model by its name", "langchain") from error
    try:
        return module.init_chat_model(name)
    except ImportError as error:
        raise MissingPackage(f"The chat model {name!r}", _package_missed_by(error)) from error
    except ValueError as error:
        raise ConfigurationFailed(
            f"LangChain knows no chat model {name!r}.", hint=str(error) or None
        ) from error


def _package_missed_by(error: ImportError) -> str:
    """Return the package to install, from LangChain's message or the missing module's name."""
    cause = error if error.name else error.__cause__
    module = getattr(cause, "name", None) or "langchain"
    return str(module).partition(".")[0].replace("_", "-")


def _name_of(model: Any) -> str:
    """Return the name of the model in a chat model, or that of its class."""
    for field in ("model_name", "model", "model_id"):
        if isinstance(name := getattr(model, field, None), str):
            return name
    return getattr(model, "__name__", type(model).__name__)


def _secret_of(model: Any) -> str | None:
    """Return the key in a chat model; its provider may repeat it in an error."""
    for value in getattr(model, "__dict__", {}).values():
        if callable(tell := getattr(value, "get_secret_value", None)):
            return str(tell())
    return None


_END = object()


async def read_in_time(
    chunks: AsyncGenerator[Any, None],
    read: Callable[[Any], Sequence[Event]],
    name: str,
    first: float | None,
    idle: float,
) -> AsyncGenerator[Event, None]:
    """Yield the events that `read` returns for each chunk. Raises `RunStalled` at a timeout.

    `first` is the timeout for the first event, `idle` that for each chunk, in seconds.
    """
    limit = FirstTokenLimit(f"{name} error", first)
    try:
        while True:
            silence = asyncio.timeout(idle)
            try:
                async with silence:
                    chunk = await limit.within_deadline(anext(chunks))
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                if not silence.expired():  # the model's own
                    raise
                raise RunStalled(
                    f"{name} error: No answer for {idle:g} seconds.",
                    kind="APIConnectionTimeoutError",
                    hint="Raise idle_timeout if the model may think that long.",
                ) from error
            for event in read(chunk):
                limit.has_event = True
                yield event
    finally:
        await chunks.aclose()


async def call_function(function: Callable[..., Any], question: Any) -> AsyncGenerator[Any, None]:
    """Yield the answer of a function, or its chunks if it returns an iterator."""
    answer = (
        function(question)
        if inspect.isasyncgenfunction(function)
        else await call(function, question)
    )
    if isinstance(answer, AsyncIterable):
        async for piece in cast("AsyncIterable[Any]", answer):
            yield piece
    elif isinstance(answer, Iterator):
        pieces = cast("Iterator[Any]", answer)
        while (piece := await asyncio.to_thread(next, pieces, _END)) is not _END:
            yield piece
    else:
        yield answer


def read_client_error(error: Exception, service: Service) -> CopilotError | None:
    """Return our error for an exception of a provider's client, or `None` if it is another one."""
    response: Any = getattr(error, "response", None)
    code: Any = getattr(error, "code", None)
    status: Any = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    match response:
        case {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}:
            pass  # botocore's
        case {"Error": {"Code": code, "Message": message}}:  # botocore's, inside a stream
            return read_stream_error(service, {"code": code, "message": message})
        case _ if status is None:
            status = code  # Google's
        case _:
            pass
    if isinstance(status, int) and 400 <= status < 600:
        return build_error(
            service,
            str(error),
            status,
            request_id=find_request_id(headers),
            retry_after=parse_retry_after(headers),
            codes=[code],
        )
    body = find_error(vars(error).get("body"))  # of an error inside a stream
    if body is not None:
        return read_stream_error(service, body)
    kind = type(error).__name__
    message = f"{service.name} error: {error}"
    if isinstance(error, TimeoutError) or "Timeout" in kind:
        return RunStalled(message, kind=kind)
    if isinstance(error, OSError) or "Connect" in kind or "RemoteProtocol" in kind:
        return NetworkError(message, kind=kind)
    return None
