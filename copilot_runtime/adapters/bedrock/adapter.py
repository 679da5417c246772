"""All models of Amazon Bedrock that converse."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from copilot_runtime.adapters.api_key import ApiKey
from copilot_runtime.adapters.bedrock.auth import Access
from copilot_runtime.adapters.bedrock.event_stream import Frames
from copilot_runtime.adapters.bedrock.models import traits_of
from copilot_runtime.adapters.bedrock.request import body_of
from copilot_runtime.adapters.bedrock.signing import Credentials
from copilot_runtime.adapters.bedrock.stream import Conversation
from copilot_runtime.adapters.capabilities import Lacks, Unsupported
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.json_body import dumped
from copilot_runtime.adapters.profiles import profile_of
from copilot_runtime.adapters.streaming import answered
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.http.client import Upstream
from copilot_runtime.interfaces import ChatRequest, Events

NAME = "Bedrock"


class BedrockAdapter:
    """Asks a model of Amazon Bedrock, by its id, an inference profile's, or an ARN.

    Who asks: a Bedrock `api_key`, or what fetches one; or `access_key` and `secret_key`, with a
    `session_token` if they are for a while only; or a `session` of `boto3`; else what the
    environment has, and the places where `botocore` looks, if the extra `bedrock` is installed:
    profiles, single sign-on, roles. `region` is `AWS_REGION` unless given.

    `cache` marks what stays the same to be kept, for models that can. `extra` is laid over the
    body of each request: `guardrailConfig`, `additionalModelRequestFields`, `performanceConfig`,
    `serviceTier`. A guardrail's own words are the answer, and its `stop_reason` is
    `content_filter`. Images that the model makes are `Activity` events of the type `image`. Times
    are in seconds: `first_token_timeout` is how long the first word may take, retries included,
    `idle_timeout` how long the model may be silent. `unsupported` says what becomes of a wish that
    the model cannot fulfil.
    """

    def __init__(
        self,
        model: str = "amazon.nova-lite-v1:0",
        *,
        region: str | None = None,
        api_key: ApiKey | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        session: Any = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        cache: bool = False,
        extra: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
        unsupported: Unsupported = "warn",
        connect_timeout: float = 10.0,
        first_token_timeout: float | None = None,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
    ) -> None:
        if bool(access_key) != bool(secret_key):
            raise ConfigurationFailed("Bedrock wants access_key and secret_key, both or none.")
        self.model = model
        self.cache = cache
        self.extra = extra
        self.context_tokens = context_tokens
        self.unsupported: Unsupported = unsupported
        self.first_token_timeout = first_token_timeout
        self._access = Access(
            region=region,
            api_key=api_key,
            credentials=Credentials(access_key, secret_key, session_token)
            if access_key and secret_key
            else None,
            session=session,
            base_url=base_url,
        )
        self._headers = {
            "accept": "application/vnd.amazon.eventstream",
            "accept-encoding": "identity",  # a compressing proxy would hold chunks back
            "user-agent": "copilot-runtime",
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._upstream = Upstream(
            NAME,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
        )

    async def stream(self, request: ChatRequest) -> Events:
        """Ask the model; yield its answer as it comes."""
        model = request.parameters.model or self.model
        lacks = Lacks("bedrock", NAME, model, self.unsupported)
        known = profile_of(traits_of(model).name)
        body = dumped(
            body_of(
                request,
                model,
                lacks,
                context_tokens=self.context_tokens or known.context_tokens,
                cache=self.cache,
                extra=self.extra,
            )
        )
        url = self._access.url(model)
        granted, secret = await self._access.enter(url, body, model)
        for warning in lacks.warnings:
            yield warning
        service = Service(NAME, model, secret, "an event stream of Bedrock's")
        events = answered(
            self._upstream.post(url, body, {**self._headers, **granted}),
            lambda: (Conversation(request, service), Frames()),
            service,
            first_token_timeout=self.first_token_timeout,
            retries=self._upstream.max_retries,
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()
