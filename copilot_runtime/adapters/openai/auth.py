"""Where OpenAI, or a server that speaks like it, is found, and the key it wants."""

import os
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from copilot_runtime.adapters.api_key import ApiKey, resolve_api_key
from copilot_runtime.adapters.openai.services import OPENAI, Preset
from copilot_runtime.errors import ConfigurationFailed

OPENAI_URL = OPENAI.base_url


@dataclass(frozen=True, slots=True)
class Pass:
    """What lets a request in: its headers, and the secret that errors must not repeat."""

    headers: dict[str, str] = field(repr=False)
    secret: str | None = field(repr=False)


class Access:
    """The address and the key; without them the variables of the preset count.

    `token` is a bearer's, such as Microsoft Entra's, and takes the place of the key. Where models
    are asked as deployments, `api_version` makes the model a part of the address.
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
        given = base_url or os.environ.get(preset.url_variable or "-")
        self._base_url = _complete(given, preset, api_version) if given else preset.base_url
        self._api_version = api_version
        self.official = bool(preset.base_url) and self._base_url.rstrip("/") == preset.base_url

    def url(self, path: str, model: str = "") -> str:
        """Return the address of an endpoint such as `chat/completions`."""
        parts = urlsplit(self._base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            preset = self._preset
            variable = f"{preset.url_variable} or " if preset.url_variable else ""
            raise ConfigurationFailed(
                f"The base URL {self._base_url!r} is not an address."
                if self._base_url
                else f"There is no address for {preset.name}.",
                hint=f"It looks like https://api.openai.com/v1 ({variable}base_url).",
            )
        if self._preset.routes_by_deployment and self._api_version:
            path = f"deployments/{quote(model, safe='')}/{path}"
            parts = parts._replace(query=urlencode({"api-version": self._api_version}))
        return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))

    async def enter(self) -> Pass:
        """Return the headers of a request. Raises when there must be a key, or it cannot be one."""
        if self._token is not None:
            token = await resolve_api_key(self._token, self._preset.name)
            return Pass({"authorization": f"Bearer {token}"}, token)
        key = await self.key()
        if key is None:
            return Pass({}, None)
        name = self._preset.key_header
        return Pass({name: f"Bearer {key}" if name == "authorization" else key}, key)

    async def key(self) -> str | None:
        """Return the key to send, if any. Raises when there must be one, or it cannot be one."""
        preset = self._preset
        key = await resolve_api_key(self._api_key, preset.name)
        if not key and preset.needs_key and (self.official or not preset.base_url):
            raise ConfigurationFailed(
                f"There is no API key for {preset.name}.",
                hint=f"Set {preset.key_variable}, or pass api_key or base_url.",
            )
        return key or None


def _complete(url: str, preset: Preset, api_version: str | None) -> str:
    """Return the address of the API, with the path it always has if only a host was given.

    Who imitates OpenAI may have no path, so `base_url` of `OpenAIAdapter` stays as it is.
    """
    parts, usual = urlsplit(url), urlsplit(preset.base_url)
    if parts.path not in ("", "/"):
        return url
    if preset.routes_by_deployment:
        path = "/openai" if api_version else "/openai/v1"
    elif preset is not OPENAI or parts.netloc == usual.netloc:
        path = usual.path
    else:
        return url
    return urlunsplit(parts._replace(path=path))
