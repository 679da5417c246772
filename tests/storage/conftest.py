"""All kinds of storages, for tests that hold for each of them."""

import logging
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from copilot_runtime.storage import LocalStorage, MemoryStorage, Storage
from copilot_runtime.storage.memory import OverlayStorage
from copilot_runtime.storage.s3 import S3Storage

buckets = count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server that speaks the protocol of S3."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an empty bucket, for which there are credentials."""
    bucket = make_bucket(s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    return bucket


def make_bucket(server: str) -> str:
    """Make an empty bucket, and return its name."""
    bucket = f"bucket{next(buckets)}"
    urlopen(Request(f"{server}/{bucket}", method="PUT")).close()
    return bucket


class OpenBucket(Protocol):
    """Opens the same bucket, as another process would."""

    def __call__(self, kind: type[S3Storage] = S3Storage) -> S3Storage: ...


@pytest.fixture
def open_bucket(s3_server: str, s3_bucket: str) -> OpenBucket:
    def open_bucket(kind: type[S3Storage] = S3Storage) -> S3Storage:
        return kind(s3_bucket, "some/prefix", region="us-east-1", endpoint=s3_server)

    return open_bucket


@pytest.fixture(params=["memory", "local", "s3", "overlay"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """An empty storage."""
    match request.param:
        case "memory":
            storage = MemoryStorage()
        case "local":
            storage = LocalStorage(tmp_path / "objects")
        case "overlay":
            storage = OverlayStorage(LocalStorage(tmp_path / "objects"))
        case _:
            storage = request.getfixturevalue("open_bucket")()
    yield storage
    await storage.aclose()
