"""Authentication by a reverse proxy, which sets a header with the user."""

from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.access.authentication.scheme import Credentials, Scheme


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
        """Return the user in the proxy's header, or `None`."""
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


class TrustedProxies:
    """The addresses and networks of proxies; `unix` is any socket of this machine."""

    def __init__(self, addresses: Collection[str]) -> None:
        self._takes_sockets = "unix" in addresses
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(text) for text in addresses if text != "unix"
        ]

    def includes(self, peer: str) -> bool:
        """Return `True` if an address belongs to a trusted proxy."""
        if peer == "unix":
            return self._takes_sockets
        if not self._networks:  # as nearly everywhere, and with each request
            return False
        try:
            address = ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)

    def find_client(self, peer: str, forwarded: str) -> str:
        """Return the client's address: the last in `X-Forwarded-For` that is not a trusted proxy.

        The addresses before it were set by the client and cannot be trusted.
        """
        client = peer
        for text in reversed(forwarded.split(",")):
            try:
                client = str(ip_address(text.strip()))
            except ValueError:
                break
            if not self.includes(client):
                break
        return client
