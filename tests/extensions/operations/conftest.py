"""The stores of a server, in each kind of place."""

from tests.storage.conftest import open_bucket, s3_bucket, s3_server

__all__ = ["open_bucket", "s3_bucket", "s3_server"]
