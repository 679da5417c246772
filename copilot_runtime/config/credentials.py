"""Find settings of ways to sign in that `access.authenticate` does not name."""

from collections.abc import Sequence
from typing import NamedTuple

from copilot_runtime.config.settings import CoreSettings

_SCHEMES = ("api_keys", "jwt", "proxy", "service_tokens")
"""Each has a section of its name."""


class UnusedCredential(NamedTuple):
    """Settings of a way to sign in that nobody uses: what that means, and which line is missing."""

    text: str
    hint: str


def list_unused_credentials(settings: CoreSettings) -> Sequence[UnusedCredential]:
    """Return which ways to sign in have settings, and are not named by `access.authenticate`.

    There is none beside a plugin: it may read these settings itself.
    """
    named = settings.access.authenticate
    if not {*named} <= {*_SCHEMES}:
        return []
    return [
        UnusedCredential(
            f"Nobody signs in by {', '.join(names)}: access.authenticate does not name {scheme}.",
            f"Set access.authenticate: [{', '.join((*named, scheme))}].",
        )
        for scheme in _SCHEMES
        if scheme not in named and (names := _list_names(settings, scheme))
    ]


def _list_names(settings: CoreSettings, scheme: str) -> Sequence[str]:
    """Return the settings of a way to sign in that are not as they are by default."""
    section = getattr(settings, scheme)
    shared = {"proxy.addresses"}  # for proxies that sign nobody in
    if "service_tokens" in settings.access.authenticate:
        shared.add("api_keys.store")  # where used tokens are
    return [
        f"{scheme}.{name}"
        for name, field in type(section).model_fields.items()
        if getattr(section, name) != field.default and f"{scheme}.{name}" not in shared
    ]
