"""Addresses of storages."""

from pathlib import Path

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.storage import LocalStorage, MemoryStorage
from copilot_runtime.storage.s3 import S3Storage
from copilot_runtime.storage.url import open_storage
from tests.in_one_test import in_one_test


def test_an_address_names_a_storage(tmp_path: Path) -> None:
    local = open_storage(f"local:{tmp_path}/a?fsync=never")
    assert isinstance(local, LocalStorage)
    assert local.root == tmp_path / "a"
    assert isinstance(open_storage("memory"), MemoryStorage)
    bucket = open_storage("s3://bucket/a%20b/?region=eu-west-1&endpoint=https://minio.example")
    assert isinstance(bucket, S3Storage)
    assert (bucket.bucket, bucket.prefix) == ("bucket", "a b")


@in_one_test(
    ("address", "message"),
    [
        ("", "The storage '' has no kind"),
        (":x", "has no kind"),
        ("disk:/x", "No storage named 'disk'. Known: local, memory, s3"),
        ("local:", "names no path"),
        ("local:x?fsync=often", "'often' is none of always, batch, never"),
        ("local:x?sync=always", "has a parameter 'sync' that it does not know"),
        ("memory:x", "'memory' has no address"),
        ("s3:bucket", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket?regoin=x", "has a parameter 'regoin'"),
        ("s3://bucket?endpoint=minio:9000", "is no address of a server"),
    ],
)
def test_an_address_that_names_none_is_refused(address: str, message: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        open_storage(address)
    assert message in caught.value.message
