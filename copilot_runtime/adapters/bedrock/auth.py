"""Where Bedrock is found, and what lets a request in: a signature, or a key of its own."""

import asyncio
import os
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlsplit

from copilot_runtime.adapters.api_key import ApiKey, fetched
from copilot_runtime.adapters.bedrock.signing import Credentials, signed
from copilot_runtime.errors import ConfigurationFailed, CopilotError

_NO_CREDENTIALS = "There are no credentials for Bedrock."
_KEYS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, or pass them"
_INSTALL = "For profiles, single sign-on and roles: pip install 'copilot-runtime[bedrock]'"


class Access:
    """The region and who asks.

    What is passed comes first: `api_key`, `credentials`, then `session`, one of `boto3` or
    `botocore`. After that the environment: `AWS_BEARER_TOKEN_BEDROCK`, `AWS_ACCESS_KEY_ID` with
    its companions; and last, if `botocore` is installed (the extra `bedrock`), the places where
    it looks: profiles, single sign-on, the roles of containers and machines.
    """

    def __init__(
        self,
        *,
        region: str | None,
        api_key: ApiKey | None,
        credentials: Credentials | None,
        session: Any,
        base_url: str | None,
    ) -> None:
        self._session = session
        self._found: Any = None  # credentials of botocore's, which renew themselves
        environment = os.environ
        if not api_key and not credentials and session is None:
            api_key = environment.get("AWS_BEARER_TOKEN_BEDROCK")
            credentials = _credentials_in(environment)
        self._api_key = api_key
        self._credentials = credentials
        self._region = (
            region
            or _region_in(session)
            or environment.get("AWS_REGION")
            or environment.get("AWS_DEFAULT_REGION")
        )
        self._base_url = base_url
        if base_url is not None:
            parts = urlsplit(base_url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigurationFailed(
                    f"The base URL {base_url!r} is not an address.",
                    hint="It looks like https://bedrock-runtime.eu-west-1.amazonaws.com.",
                )

    def url(self, model: str) -> str:
        """Return the address that streams the answers of a model."""
        return f"{self._host(model)}/model/{quote(model, safe='')}/converse-stream"

    async def enter(self, url: str, body: bytes, model: str) -> tuple[dict[str, str], str]:
        """Return the headers that let this request in, and the secret in them."""
        headers = {"content-type": "application/json"}
        if key := await fetched(self._api_key, "Bedrock"):
            return {**headers, "authorization": f"Bearer {key}"}, key
        who = self._credentials or await self._from_botocore()
        return signed(url, body, headers, who, region=self._region_of(model)), who.secret_key

    def _host(self, model: str) -> str:
        if self._base_url:
            return self._base_url.rstrip("/")
        region = self._region_of(model)
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        return f"https://bedrock-runtime.{region}.{suffix}"

    def _region_of(self, model: str) -> str:
        """Return the region; the ARN of a model tells one too."""
        named = model.split(":")[3] if model.startswith("arn:") and model.count(":") > 4 else ""
        if region := self._region or named:
            return region
        raise ConfigurationFailed(
            "There is no region for Bedrock.", hint="Set AWS_REGION, or pass region."
        )

    async def _from_botocore(self) -> Credentials:
        try:
            return await self._renewed()
        except CopilotError:
            raise
        except Exception as error:  # botocore has dozens: an unknown profile, an old sign-on
            hint = f"botocore says: {error} {_KEYS}, or mend the profile."
            raise ConfigurationFailed(_NO_CREDENTIALS, hint=hint) from error

    async def _renewed(self) -> Credentials:
        if self._found is None:
            self._found = await asyncio.to_thread(_found_by_botocore, self._session)
        found = self._found
        if hasattr(found, "refresh_needed") and found.refresh_needed():
            frozen = await asyncio.to_thread(found.get_frozen_credentials)
        else:
            frozen = found.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)


def _credentials_in(environment: Any) -> Credentials | None:
    access = environment.get("AWS_ACCESS_KEY_ID", "").strip()
    secret = environment.get("AWS_SECRET_ACCESS_KEY", "").strip()
    if not access or not secret:
        return None
    return Credentials(access, secret, environment.get("AWS_SESSION_TOKEN") or None)


def _region_in(session: Any) -> str | None:
    """Return the region of a session of `boto3` or, where it is called otherwise, `botocore`."""
    if hasattr(session, "get_config_variable"):
        return session.get_config_variable("region")
    return getattr(session, "region_name", None)


def _found_by_botocore(session: Any) -> Any:
    if session is None:
        try:
            botocore = import_module("botocore.session")
        except ImportError as error:
            raise ConfigurationFailed(_NO_CREDENTIALS, hint=f"{_KEYS}. {_INSTALL}") from error
        session = botocore.Session()
    found = session.get_credentials()
    if found is None:
        raise ConfigurationFailed(
            _NO_CREDENTIALS,
            hint=f"{_KEYS}. Or give botocore a profile: AWS_PROFILE, or `aws configure`.",
        )
    return found
