"""What every test gets: asyncio, and no way out of this machine."""

import gc
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.threads.cluster import Cluster, running_cluster

# also for the servers that tests start: threads on disk are for tests that ask for them
os.environ.setdefault("COPILOT_THREADS", "memory")

# a shell that starts `make test` in the background has SIGINT ignored, and every program inherits
# that: a test of Ctrl-C would wait for ever
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a machine that is busy takes longer, and is no failure
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

# what is imported stays: the garbage collector need not look at it, now or later
gc.disable()

TESTS = Path(__file__).parent

# these drive browsers, npm, or servers in other processes: `make test-quick` leaves them out
WHOLE = (
    "adapters/aimock",
    "extensions/frameworks/crewai",
    "extensions/frameworks/langgraph",
    "browser",
    "conformance",
    "extensions/knowledge/graph/test_kill.py",
    "extensions/knowledge/ingestion/test_ingest_beside_a_server.py",
    "extensions/knowledge/ingestion/test_kill.py",
    "extensions/knowledge/vectors/test_kill.py",
    "extensions/operations/test_backup.py",
    "extensions/operations/test_health.py",
    "site",
    "cli/test_cli.py",
    "test_trip_examples.py",
    "test_wheel.py",
    "threads/test_export.py",
    "threads/test_kill.py",
    "threads/test_kill_v1.py",
    "extensions/mcp/server/test_mcp_pipes.py",
    "wire_agui/test_stalled_memory.py",
)

# the files of such a folder share a server that takes seconds to start: one worker has them all
TOGETHER = ("extensions/frameworks/langgraph", "extensions/storage")

# these take longest: begun first, none of them is what all others wait for at the end
LONG = (*WHOLE, "threads")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # not even imported then, in every worker
    return (config.option.markexpr == "not whole" and is_one_of(collection_path, WHOLE)) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    paths = {item.path for item in items}
    long = {path for path in paths if is_one_of(path, LONG)}
    whole = {path for path in paths if is_one_of(path, WHOLE)}
    items.sort(key=lambda item: item.path not in long)
    for item in items:
        if item.path in whole:
            item.add_marker("whole")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(5_000, 50, 50)  # nearly as a server has it: a fifth of the time of many tests
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.option.dist != "loadfile":
        return None
    scheduling: Any = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduling._split_scope = choose_scope
    return scheduling


def choose_scope(nodeid: str) -> str:
    """Return what a test has in common with all others that the same worker is to run."""
    file = nodeid.partition("::")[0]
    folders = [folder for folder in TOGETHER if is_one_of(TESTS.parent / file, [folder])]
    return folders[0] if folders else file


def is_one_of(path: Path, parts: Sequence[str]) -> bool:
    return any(path.is_relative_to(TESTS / part) for part in parts)


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
