"""The address and the authentication of Gemini: a key, or a token at Vertex AI."""

import asyncio
import os
from typing import Any
from urllib.parse import quote

from copilot_runtime.adapters.http_adapter import ApiKey, resolve_api_key
from copilot_runtime.base.errors import AuthenticationFailed, ConfigurationFailed, MissingPackage
from copilot_runtime.http.errors import parse_url

GOOGLE_AI = "https://generativelanguage.googleapis.com/v1beta"

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_REGIONS = ("us", "eu")
"""Multi-region locations, whose addresses have another form."""


class Authentication:
    """The address and the key. With a `project`, or `vertex` alone for express mode, Vertex AI.

    Without `api_key`, `GOOGLE_API_KEY` or `GEMINI_API_KEY` counts. Vertex AI in a project takes a
    token: from `token`, else from `credentials` or the application default ones, by `google-auth`.
    """

    def __init__(
        self,
        api_key: ApiKey | None,
        base_url: str | None,
        *,
        vertex: bool = False,
        project: str | None = None,
        location: str | None = None,
        token: ApiKey | None = None,
        credentials: Any = None,
    ) -> None:
        self.vertex = vertex or bool(project)
        self._project = project
        self._token = token
        self._credentials = credentials
        self._key = api_key or _key_in_environment()
        self._location = location or os.environ.get("GOOGLE_CLOUD_LOCATION") or "global"
        self._base_url = (base_url or self._usual()).rstrip("/")
        parts = parse_url(
            self._base_url,
            "base URL",
            f"It looks like {GOOGLE_AI} (base_url).",
            has_authorization=self._has_bearer(),
        )
        if not parts.path and not self.vertex:  # Google's own client wants it without a version
            self._base_url += "/v1beta"

    def build_url(self, model: str, method: str = "streamGenerateContent?alt=sse") -> str:
        """Return the URL of a method of a model; by default, that of streamed answers."""
        name = quote(model, safe="/")
        if self.vertex:
            if "/" not in name:
                name = f"publishers/google/models/{name}"
            if self._project and not name.startswith("projects/"):
                name = f"projects/{quote(self._project)}/locations/{quote(self._location)}/{name}"
        elif "/" not in name:
            name = f"models/{name}"
        return f"{self._base_url}/{name}:{method}"

    async def check_key(self) -> None:
        """Raise `ConfigurationFailed` if there is neither a key nor another way to sign in."""
        if not self._has_bearer():
            await self.authenticate()

    async def authenticate(self) -> tuple[dict[str, str], str]:
        """Return the headers and the secret in them. Raises `ConfigurationFailed` without one."""
        if self._has_bearer():
            token = await self._bearer()
            return {"authorization": f"Bearer {token}"}, token
        key = await resolve_api_key(self._key, "Google")
        if not key:
            raise ConfigurationFailed(
                "There is no API key for Google.",
                hint="Set GOOGLE_API_KEY or GEMINI_API_KEY, or pass api_key; "
                "for Vertex AI pass project.",
            )
        return {"x-goog-api-key": key}, key

    def _has_bearer(self) -> bool:
        return self._token is not None or self._credentials is not None or bool(self._project)

    def _usual(self) -> str:
        if not self.vertex:
            return GOOGLE_AI
        if self._location == "global" or not self._project:
            return "https://aiplatform.googleapis.com/v1beta1"
        if self._location in _REGIONS:
            return f"https://aiplatform.{self._location}.rep.googleapis.com/v1beta1"
        return f"https://{self._location}-aiplatform.googleapis.com/v1beta1"

    async def _bearer(self) -> str:
        if self._token is not None:
            if token := await resolve_api_key(self._token, "Google"):
                return token
            raise ConfigurationFailed("There is no token for Vertex AI.", hint="Look at token.")
        if self._credentials is None:
            self._credentials = await asyncio.to_thread(_default_credentials)
        if not self._credentials.valid:
            await asyncio.to_thread(_refresh, self._credentials)
        return self._credentials.token


def _key_in_environment() -> str | None:
    return os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY") or None


def _default_credentials() -> Any:
    try:
        from google.auth import default
        from google.auth.exceptions import DefaultCredentialsError
    except ImportError as error:
        raise MissingPackage("Vertex AI without a token", "google-auth", "google") from error
    try:
        return default(scopes=[_SCOPE])[0]
    except DefaultCredentialsError as error:
        raise ConfigurationFailed(
            "There are no credentials for Vertex AI.", hint=f"{error} Or pass token."
        ) from error


def _refresh(credentials: Any) -> None:
    try:
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request
    except ImportError as error:
        raise MissingPackage("Vertex AI", "google-auth[requests]", "google") from error
    try:
        credentials.refresh(Request())
    except GoogleAuthError as error:
        raise AuthenticationFailed(
            "Google API error: No token was given for Vertex AI.", hint=str(error)
        ) from error
