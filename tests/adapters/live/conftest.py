"""A way out of this machine, for these tests only."""

import socket

import pytest

# taken while tests are collected, before the guard of tests/conftest.py stands
_REAL = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}
_RESOLVE = socket.getaddrinfo


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test reach other machines."""
    for name, real in _REAL.items():
        monkeypatch.setattr(socket.socket, name, real)
    monkeypatch.setattr(socket, "getaddrinfo", _RESOLVE)
