"""Public addresses, and all the ways to write others."""

import socket
from typing import Any

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, NetworkError
from copilot_runtime.security.addresses import is_public, resolve_public_addresses
from tests.in_one_test import in_one_test


@in_one_test(
    "address", ["8.8.8.8", "172.32.0.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_these_are_public(address: str) -> None:
    assert is_public(address)


@in_one_test(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
        *("224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "240.0.0.1"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:a00:1", "::127.0.0.1", "64:ff9b::7f00:1", "2001:db8::1"),
        *("2002:7f00:1::", "2002:a00:1::", "2001:0:7f00:1::", "64:ff9b:1::808:808"),
        *(
            "192.88.99.1",
            "fec0::1",
            "3fff::1",
            "2001:4860::5efe:a00:1",
            "2001:4860::200:5efe:7f00:1",
        ),
        *("", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"),
    ],
)
def test_these_are_not(address: str) -> None:
    assert not is_public(address)


def answering(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Make every name have these addresses."""

    def found(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        del host, args, kwargs
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (it, port)) for it in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.anyio
async def test_a_name_with_public_addresses_has_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "8.8.8.8", "8.8.4.4", "8.8.8.8")

    assert await resolve_public_addresses("a.example", 443) == ["8.8.8.8", "8.8.4.4"]


@pytest.mark.anyio
async def test_one_private_address_among_public_ones_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, "8.8.8.8", "10.0.0.1")

    with pytest.raises(ConfigurationFailed, match=r"'a\.example' is not a public server"):
        await resolve_public_addresses("a.example", 443)


@pytest.mark.anyio
@in_one_test("host", ["127.0.0.1", "localhost", "::1"])
async def test_this_machine_is_not_public(host: str) -> None:
    with pytest.raises(ConfigurationFailed):
        await resolve_public_addresses(host, 80)


@pytest.mark.anyio
@in_one_test("host", ["nobody.invalid", "a..b", "x" * 70 + ".example"])
async def test_a_name_without_addresses_is_an_error(host: str) -> None:
    with pytest.raises(NetworkError, match="There is no server"):
        await resolve_public_addresses(host, 80)
