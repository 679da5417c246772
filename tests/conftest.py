"""What every test gets: asyncio, and no way out of this machine."""

import gc
import os
import signal
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from tests.threads.cluster import Cluster, running_cluster

# also for the servers that tests start: threads on disk are for tests that ask for them
os.environ.setdefault("COPILOT_THREADS", "memory")

# a shell that starts `make test` in the background has SIGINT ignored, and every program inherits
# that: a test of Ctrl-C would wait for ever
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# what is imported stays: the garbage collector need not look at it, now or later
gc.disable()

pytest_plugins = (
    "tests.plugin.selection",
    "tests.plugin.order",
    "tests.plugin.rerun",
    "tests.plugin.stalls",
)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(5_000, 50, 50)  # nearly as a server has it: a fifth of the time of many tests
    gc.enable()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Run a PostgreSQL of our own."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
async def database(anyio_backend: str, cluster: Cluster) -> str:
    """Return the URL of an empty place in it."""
    return await cluster.make_schema()


@pytest.fixture(autouse=True)
def own_variables() -> Iterator[None]:
    """Take back what commands leave for the modules that they serve."""
    before = {name: value for name, value in os.environ.items() if name.startswith("COPILOT_")}
    yield
    for name in [name for name in os.environ if name.startswith("COPILOT_")]:
        if name not in before:
            del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Fail every connection that would leave this machine; unix sockets are fine."""
    connect, connect_ex, resolve = (
        socket.socket.connect,
        socket.socket.connect_ex,
        socket.getaddrinfo,
    )

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _check(self, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _check(self, address)
        return connect_ex(self, address)

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name and not _is_local(name) and not _is_address(name):
            # as if there were no such host: a test may well ask for one that does not exist
            raise socket.gaierror(socket.EAI_NONAME, f"tests do not look up {name!r}")
        return resolve(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket, "getaddrinfo", guarded_resolve)
        yield


def _check(sock: socket.socket, address: Any) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
        raise AssertionError(f"A test wanted to connect to {address!r}; only loopback is allowed.")


def _is_local(host: str) -> bool:
    if _is_address(host):
        address = ip_address(host)
        return address.is_loopback or address.is_unspecified
    return host == "localhost" or host.endswith(".localhost")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
