"""The addresses of proxies, and the clients behind them."""

from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network


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
