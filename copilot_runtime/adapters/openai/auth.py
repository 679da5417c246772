"""The address of OpenAI, or of a server with the same API, and the key for it."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from copilot_runtime.adapters.http_adapter import ApiKey, resolve_api_key
from copilot_runtime.adapters.openai.request import OPENAI, Preset
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.http.errors import parse_url

_GITHUB_HOST = "models.github.ai"


@dataclass(frozen=True, slots=True)
class Authorization:
    """The headers that authorize a request, and their secret, which errors must not contain."""

    headers: dict[str, str] = field(repr=False)
    secret: str | None = field(repr=False)


class OpenAIAuth:
    """The address and the key; by default those in the variables of the preset.

    `token` is a bearer token, such as Microsoft Entra's, and takes the place of the key. Where a
    model is a deployment, `api_version` makes it a part of the address.
    """

    def __init__(
        self,
        api_key: ApiKey | None,
        base_url: str | None,
        preset: Preset = OPENAI,
        *,
        token: ApiKey | None = None,
        api_version: str | None = None,
    ) -> None:
        self._preset = preset
        self._token = token
        self._api_key = api_key or os.environ.get(preset.key_variable) or None
        url = base_url or os.environ.get(preset.url_variable or "-")
        self.base_url = _complete_url(url, preset, api_version) if url else preset.base_url
        self._api_version = api_version

    def url(self, path: str, model: str = "") -> str:
        """Return the URL of an endpoint such as `chat/completions`.

        Raises `ConfigurationFailed` if the base URL is invalid or missing.
        """
        root, tail = self._root_and_tail
        if self._preset.routes_by_deployment and self._api_version:
            path = f"deployments/{quote(model, safe='')}/{path}"
        return f"{root}/{path}{tail}"

    @cached_property
    def _root_and_tail(self) -> tuple[str, str]:
        """The base URL without a final slash, and the query that follows the path."""
        preset = self._preset
        variable = f"{preset.url_variable} or " if preset.url_variable else ""
        hint = f"It looks like https://api.openai.com/v1 ({variable}base_url)."
        if not self.base_url:
            raise ConfigurationFailed(f"There is no address for {preset.name}.", hint=hint)
        has_key = bool(self._api_key) and preset.key_header == "authorization"
        authorized = self._token is not None or has_key
        parts = parse_url(self.base_url, "base URL", hint, has_authorization=authorized)
        if preset.routes_by_deployment and self._api_version:
            parts = parts._replace(query=urlencode({"api-version": self._api_version}))
        root = parts._replace(path=parts.path.rstrip("/"), query="", fragment="")
        return urlunsplit(root), urlunsplit(("", "", "", parts.query, parts.fragment))

    @property
    def is_fixed(self) -> bool:
        """Whether all requests have the same authorization: no function returns the key."""
        return not callable(self._api_key if self._token is None else self._token)

    async def authorize(self) -> Authorization:
        """Return the authorization of one request.

        Raises `ConfigurationFailed` if a required key is missing or contains invalid characters.
        """
        preset = self._preset
        if self._token is not None:
            token = await resolve_api_key(self._token, preset.name)
            return Authorization({"authorization": f"Bearer {token}"}, token)
        if key := await resolve_api_key(self._api_key, preset.name):
            name = preset.key_header
            return Authorization({name: f"Bearer {key}" if name == "authorization" else key}, key)
        if preset.needs_key and (preset.is_at(self.base_url) or not preset.base_url):
            raise ConfigurationFailed(
                f"There is no API key for {preset.name}.",
                hint=f"Set {preset.key_variable}, or pass api_key or base_url.",
            )
        return Authorization({}, None)


def _complete_url(url: str, preset: Preset, api_version: str | None) -> str:
    """Return the base URL, with the service's usual path if only its host was given.

    A compatible server may have no path, so the URL of another host is not changed. GitHub's path
    also follows that of an organisation.
    """
    parts, usual = urlsplit(url), urlsplit(preset.base_url)
    if parts.hostname == _GITHUB_HOST and "/inference" not in parts.path:
        return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/inference"))
    if parts.path not in ("", "/"):
        return url
    if preset.routes_by_deployment:
        path = "/openai" if api_version else "/openai/v1"
    elif preset is not OPENAI or parts.netloc == usual.netloc:
        path = usual.path
    else:
        return url
    return urlunsplit(parts._replace(path=path))
