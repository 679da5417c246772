"""No test leaves this machine."""

import socket

import pytest

from tests.in_one_test import in_one_test


@in_one_test("address", ["192.0.2.1", "8.8.8.8"])
def test_another_machine_cannot_be_reached(address: str) -> None:
    with socket.socket() as sock, pytest.raises(AssertionError, match="only loopback"):
        sock.connect((address, 80))


def test_other_names_are_not_looked_up() -> None:
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("example.com", 80)


def test_this_machine_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
