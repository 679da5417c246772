"""IP addresses: the public ones, to which a client may have us connect (SSRF), and networks."""

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
"""What not every Python calls private: where Oracle's and Azure's clouds answer their machines, the
relays of 6to4, the sites of old, and a network for documents.

https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
"""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""What stands before an IPv4 address in one of IPv6: https://www.rfc-editor.org/rfc/rfc5214"""


def find_network(address: str) -> str:
    """Return the network of a client's address: of IPv6, one client has any number of addresses.

    An address of IPv4, and what is none at all, comes back as it is.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.ipv4_mapped is not None:
        return address
    return str(IPv6Network((found.packed, 64), strict=False))


def is_public(address: str) -> bool:
    """Return whether an IP address, in its usual form, is one of the public internet.

    Not public is also what another notation hides: an IPv4 address inside one of IPv6.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_is_public(one) for one in (ip, *_embedded_addresses(ip)))


async def resolve_public_addresses(host: str, port: int) -> Sequence[str]:
    """Return the addresses a name has at this moment, all of them public.

    Whoever connects must connect to one of these and not ask again: the next answer may differ.
    Forms such as `2130706433` or `0x7f.1` are names here, and what they stand for is looked at.
    Raises `NetworkError` for a name without addresses, `ConfigurationFailed` for what is private.
    """
    loop = asyncio.get_running_loop()
    try:
        records = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NetworkError(f"There is no server {host!r}.", hint=str(error)) from error
    addresses = [*dict.fromkeys(str(where[4][0]) for where in records)]
    # one private address among public ones is how a name is made to point inside
    if private := [address for address in addresses if not is_public(address)]:
        raise ConfigurationFailed(
            f"{host!r} is not a public server.",
            hint=f"It has the address {private[0]}, which only the operator may name.",
        )
    return addresses


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if ip in _NAT64 or ip in _MAPPED:  # the address within says where it leads
        return True
    special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _INNER)
    return ip.is_global and not special


def _embedded_addresses(ip: IPv4Address | IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address may lead to."""
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
