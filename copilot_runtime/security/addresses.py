"""IP addresses: protection against SSRF, and the networks of clients."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from copilot_runtime.base.errors import ConfigurationFailed, NetworkError

_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")

_MAPPED = IPv6Network("::ffff:0:0/96")

_INNER = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("168.63.129.16/32"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("fec0::/10"),
    IPv6Network("3fff::/20"),
)
"""Non-public networks that some versions of Python regard as global: services of Oracle's and
Azure's clouds, 6to4 relays, site-local addresses, and a network for documentation.

https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
"""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The bits before an embedded IPv4 address (ISATAP): https://www.rfc-editor.org/rfc/rfc5214"""


def find_network(address: str) -> str:
    """Return the /64 network of an IPv6 address, because one client has many addresses in it.

    An IPv4 address or other text is returned unchanged.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.ipv4_mapped is not None:
        return address
    return str(IPv6Network((found.packed, 64), strict=False))


def is_public(address: str) -> bool:
    """Return whether an IP address is public.

    An IPv6 address is not public if it contains an IPv4 address that is not.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_is_public(one) for one in (ip, *_embedded_addresses(ip)))


async def resolve_public_addresses(host: str, port: int) -> Sequence[str]:
    """Return the current addresses of a host name, all of which are public.

    Connect to one of these addresses instead of resolving the name again, which may give another
    result. Forms such as `2130706433` or `0x7f.1` are resolved as names.
    Raises `NetworkError` for a name without addresses, `ConfigurationFailed` for a private one.
    """
    loop = asyncio.get_running_loop()
    try:
        records = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NetworkError(f"There is no server {host!r}.", hint=str(error)) from error
    addresses = [*dict.fromkeys(str(where[4][0]) for where in records)]
    # a name with one private address among public ones may be an attack
    if private := [address for address in addresses if not is_public(address)]:
        raise ConfigurationFailed(
            f"{host!r} is not a public server.",
            hint=f"It has the address {private[0]}, which only the operator may name.",
        )
    return addresses


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if ip in _NAT64 or ip in _MAPPED:  # the embedded address is checked instead
        return True
    special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _INNER)
    return ip.is_global and not special


def _embedded_addresses(ip: IPv4Address | IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that are embedded in an IPv6 address."""
    if not isinstance(ip, IPv6Address):
        return
    if ip in _NAT64 or ip in _COMPATIBLE:
        yield IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip.ipv4_mapped is not None:
        yield ip.ipv4_mapped
    if (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip.sixtofour is not None:
        yield ip.sixtofour
    if ip.teredo is not None:
        yield from ip.teredo
