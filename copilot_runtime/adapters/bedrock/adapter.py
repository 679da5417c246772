"""All models of Amazon Bedrock that converse."""

from collections.abc import Mapping
from typing import Any, Unpack

from copilot_runtime.adapters.api_key import ApiKey
from copilot_runtime.adapters.bedrock.auth import Authentication
from copilot_runtime.adapters.bedrock.client import open_client_response
from copilot_runtime.adapters.bedrock.event_stream import Frames
from copilot_runtime.adapters.bedrock.models import find_traits
from copilot_runtime.adapters.bedrock.request import build_body
from copilot_runtime.adapters.bedrock.stream import ConverseReader
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.http_adapter import HTTPAdapter, HTTPOptions
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.adapters.sdk_client import JsonEvents
from copilot_runtime.adapters.streaming import ProviderRequest, encode_body
from copilot_runtime.interfaces import ChatRequest

NAME = "Bedrock"

_FORMAT = "an event stream of Bedrock's"
_ACCEPT = "application/vnd.amazon.eventstream"


class BedrockAdapter(HTTPAdapter):
    """Asks a model of Amazon Bedrock, by its id, an inference profile's, or an ARN.

    Needs `botocore`, the extra `bedrock`. A request is authenticated by a Bedrock `api_key`, or a
    function that fetches one; or by `access_key` and `secret_key`, with a `session_token` if they
    are temporary; or by a `session` of `boto3` or `botocore`; else by the credentials that
    `botocore` finds: in the environment, profiles, single sign-on, roles. `region` is `AWS_REGION`
    unless given. With `client`, a `bedrock-runtime` client of `boto3`, its authentication, region,
    address, transport, timeouts and retries are used in place of these; it stays open:

        BedrockAdapter(client=boto3.client("bedrock-runtime", region_name="eu-west-1"))

    `cache` marks what stays the same to be kept, for models that can. `extra` is laid over the
    body of each request: `guardrailConfig`, `additionalModelRequestFields`, `performanceConfig`,
    `serviceTier`. A guardrail's own words are the answer, and its `stop_reason` is
    `content_filter`. Images that the model makes are `Activity` events of the type `image`.
    `options` are those of `HTTPOptions`.
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
        client: Any = None,
        base_url: str | None = None,
        cache: bool = False,
        extra: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
        **options: Unpack[HTTPOptions],
    ) -> None:
        super().__init__(model, adapter="bedrock", service=NAME, accept=_ACCEPT, **options)
        self.cache = cache
        self.extra = extra
        self.context_tokens = context_tokens
        self._client = client
        self._authentication = Authentication(
            region=region,
            api_key=api_key,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            session=session,
            base_url=base_url,
        )

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        profile = find_profile(find_traits(model).name)
        body = build_body(
            request,
            model,
            capabilities,
            context_tokens=self.context_tokens or profile.context_tokens,
            cache=self.cache,
            extra=self.extra,
        )
        if self._client is not None:
            service = Service(NAME, model, speaks=_FORMAT)
            return ProviderRequest(
                exchange=open_client_response(self._client, model, body, service),
                service=service,
                new_reader=lambda: (ConverseReader(request, service), JsonEvents()),
                accepts_json=False,
            )
        url, content = self._authentication.build_url(model), encode_body(body)
        headers, secret = await self._authentication.authenticate(url, content, model)
        service = Service(NAME, model, secret, _FORMAT)
        return ProviderRequest(
            exchange=self._upstream.post(url, content, {**self._headers, **headers}),
            service=service,
            new_reader=lambda: (ConverseReader(request, service), Frames()),
            max_retries=self._upstream.max_retries,
            accepts_json=False,
        )
