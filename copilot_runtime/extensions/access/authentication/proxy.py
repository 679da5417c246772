"""Authentication by a reverse proxy, which sets a header with the user."""

from collections.abc import Collection

from copilot_runtime.api.identity import Identity
from copilot_runtime.api.scheme import Credentials, Scheme
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.security.proxies import TrustedProxies


class ProxyScheme(Scheme):
    """Trusts the headers of the proxies in `proxy.sign_in_addresses` only.

    A load balancer in `proxy.addresses` forwards headers of clients, so it is not trusted. From all
    other senders, these headers are removed, so that no hook or agent trusts them either.
    """

    def __init__(self, settings: Settings) -> None:
        section = settings.proxy
        if not section.sign_in_addresses:
            raise ConfigurationFailed(
                "access.authenticate names proxy, and proxy.sign_in_addresses is empty.",
                hint="Name the addresses of the proxies that sign people in, such as 10.0.0.7, and "
                "of none that passes on headers of clients: proxy.addresses is for those.",
            )
        self._proxies = TrustedProxies(section.sign_in_addresses)
        self._user = section.user_header
        self._tenant = section.tenant_header
        self._roles = section.roles_header
        self.headers = [name for name in (self._user, self._tenant, self._roles) if name]

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        if not self._proxies.includes(credentials.peer):
            return None
        user = credentials.headers.get(self._user, "").strip()
        if not user:
            return None
        roles = credentials.headers.get(self._roles, "") if self._roles else ""
        return Identity(
            user=user,
            tenant=credentials.headers.get(self._tenant, "").strip() if self._tenant else "",
            roles=[role.strip() for role in roles.split(",") if role.strip()],
            method="proxy",
        )

    def find_forged_headers(self, credentials: Credentials) -> Collection[str]:
        """Return the headers of this scheme, if the sender is not a trusted proxy."""
        return () if self._proxies.includes(credentials.peer) else self.headers
