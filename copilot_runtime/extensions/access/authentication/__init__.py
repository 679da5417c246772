"""The authentication schemes: the table of the built-in ones, and the chain of the settings."""

from copilot_runtime.api.registry import Registry
from copilot_runtime.api.scheme import Scheme
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.security.schemes import SchemeChain

SCHEMES = {
    "api_keys": "copilot_runtime.extensions.access.authentication.api_keys:ApiKeyScheme",
    "jwt": "copilot_runtime.extensions.access.authentication.jwt:JwtScheme",
    "proxy": "copilot_runtime.extensions.access.authentication.proxy:ProxyScheme",
    "service_tokens": (
        "copilot_runtime.extensions.access.authentication.service_tokens:ServiceTokenScheme"
    ),
}
"""Name in the setting `access.authenticate` → import string of a `Scheme` made of `Settings`."""


def build_chain(settings: Settings) -> SchemeChain | None:
    """Return the chain of the settings' schemes, or `None`. Raises `ConfigurationFailed`."""
    names = [*dict.fromkeys(settings.access.authenticate)]
    if not names:
        return None
    table = Registry("copilot_runtime.authentication", SCHEMES, noun="way to sign in")
    return SchemeChain({name: _build(table, name, settings) for name in names})


def _build(table: Registry, name: str, settings: Settings) -> Scheme:
    scheme = table[name](settings)
    if not isinstance(scheme, Scheme):
        raise ConfigurationFailed(
            f"The way to sign in {name!r} is a {type(scheme).__name__}, and no Scheme.",
            hint="Subclass copilot_runtime.api.scheme.Scheme.",
        )
    return scheme
