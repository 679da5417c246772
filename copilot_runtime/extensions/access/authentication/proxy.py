"""Users whom a proxy has signed in, who are in a header that it sets."""

from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.access.authentication.scheme import Credentials, Scheme


class ProxyScheme(Scheme):
    """Believes headers of the proxies in `proxy.sign_in_addresses`, and of nobody else.

    A balancer in `proxy.addresses` passes on what clients write, so it is not among them. From
    others, these headers are taken away, so that no hook and no agent believes them either.
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
        """Return the user whom a proxy names, if it does."""
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
        """Return the headers of this scheme, if they come from elsewhere."""
        return () if self._proxies.includes(credentials.peer) else self.headers


class TrustedProxies:
    """The addresses and networks of proxies; `unix` is any socket of this machine."""

    def __init__(self, addresses: Collection[str]) -> None:
        self._takes_sockets = "unix" in addresses
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(text) for text in addresses if text != "unix"
        ]

    def includes(self, peer: str) -> bool:
        """Return whether an address is one of them."""
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
        """Return who is behind a proxy: the last address of `X-Forwarded-For` that is none of them.

        What stands before it was written by the client, and may say anything.
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
