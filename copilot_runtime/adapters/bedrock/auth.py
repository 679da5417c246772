"""The address and the authentication of Bedrock: a signature by `botocore`, or an API key."""

import asyncio
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import quote

from copilot_runtime.adapters.http_adapter import ApiKey, resolve_api_key
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.http.errors import parse_url

_NO_CREDENTIALS = "There are no credentials for Bedrock."
_KEYS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, or pass them"


class Authentication:
    """The region, and an API key or a `botocore` session with credentials.

    Arguments take precedence: `api_key`, `access_key` with its companions, then `session`, one of
    `boto3` or `botocore`. Next is `AWS_BEARER_TOKEN_BEDROCK`, and last the credential chain of
    `botocore`: environment, profiles, single sign-on, roles of containers and machines.
    """

    def __init__(
        self,
        *,
        region: str | None = None,
        api_key: ApiKey | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        session: Any = None,
        base_url: str | None = None,
    ) -> None:
        if bool(access_key) != bool(secret_key):
            raise ConfigurationFailed("Bedrock wants access_key and secret_key, both or none.")
        if not api_key and not access_key and session is None:
            api_key = os.environ.get("AWS_BEARER_TOKEN_BEDROCK")
        self._api_key = api_key
        self._region = (
            region
            or _region_in(session)
            or os.environ.get("AWS_REGION")
            or os.environ.get("AWS_DEFAULT_REGION")
        )
        if access_key or session is None:
            session = _import("botocore.session").Session()
        if access_key:
            session.set_credentials(access_key, secret_key, session_token)
        self._session = session
        self._base_url = base_url
        if base_url is not None:
            parse_url(
                base_url,
                "base URL",
                "It looks like https://bedrock-runtime.eu-west-1.amazonaws.com.",
                has_authorization=True,
            )

    def build_url(self, model: str, operation: str = "converse-stream") -> str:
        """Return the URL of an operation of a model; by default, that of streamed answers."""
        if self._base_url:
            host = self._base_url.rstrip("/")
        else:
            region = self._find_region(model)
            suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
            host = f"https://bedrock-runtime.{region}.{suffix}"
        return f"{host}/model/{quote(model, safe='')}/{operation}"

    async def authenticate(self, url: str, body: bytes, model: str) -> tuple[dict[str, str], str]:
        """Return the headers that authenticate the request, and the secret in them.

        Raises `ConfigurationFailed` without a region, and without credentials.
        """
        headers = {"content-type": "application/json"}
        if key := await resolve_api_key(self._api_key, "Bedrock"):
            return {**headers, "authorization": f"Bearer {key}"}, key
        region = self._find_region(model)
        # profiles, single sign-on and roles read files and ask servers
        credentials = await asyncio.to_thread(self._load_credentials)
        return sign_request(url, body, headers, credentials, region), credentials.secret_key

    def _find_region(self, model: str) -> str:
        """Return the region; the ARN of a model has one too."""
        in_arn = model.split(":")[3] if model.startswith("arn:") and model.count(":") > 4 else ""
        if region := self._region or in_arn:
            return region
        raise ConfigurationFailed(
            "There is no region for Bedrock.", hint="Set AWS_REGION, or pass region."
        )

    def _load_credentials(self) -> Any:
        try:
            credentials = self._session.get_credentials()
            if credentials is not None:
                return credentials.get_frozen_credentials()
        except Exception as error:  # botocore has dozens: an unknown profile, an old sign-on
            hint = f"botocore says: {error} {_KEYS}, or mend the profile."
            raise ConfigurationFailed(_NO_CREDENTIALS, hint=hint) from error
        raise ConfigurationFailed(
            _NO_CREDENTIALS,
            hint=f"{_KEYS}. Or give botocore a profile: AWS_PROFILE, or `aws configure`.",
        )


def sign_request(
    url: str, body: bytes, headers: Mapping[str, str], credentials: Any, region: str
) -> dict[str, str]:
    """Return the headers of a POST with its signature (SigV4), good for the next five minutes."""
    request = _import("botocore.awsrequest").AWSRequest("POST", url, data=body, headers=headers)
    _import("botocore.auth").SigV4Auth(credentials, "bedrock", region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def _region_in(session: Any) -> str | None:
    """Return the region of a session of `boto3` or, where it is called otherwise, `botocore`."""
    if hasattr(session, "get_config_variable"):
        return session.get_config_variable("region")
    return getattr(session, "region_name", None)


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage("BedrockAdapter", "botocore", "bedrock") from error
