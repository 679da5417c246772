"""The stores of a server, in each kind of place."""

from tests.storage.conftest import open_bucket, s3_bucket, s3_server
from tests.threads.conftest import cluster, database

__all__ = ["cluster", "database", "open_bucket", "s3_bucket", "s3_server"]
