"""What is asked at each door, and for whom it is."""

from collections.abc import Mapping

from tests.extensions.access.matrix.rows.a2a import A2A_ROWS
from tests.extensions.access.matrix.rows.asks import Row
from tests.extensions.access.matrix.rows.graphql import GRAPHQL_ROWS
from tests.extensions.access.matrix.rows.grpc import GRPC_ROWS
from tests.extensions.access.matrix.rows.http import HTTP_ROWS

ROWS: Mapping[str, Row] = {**HTTP_ROWS, **GRAPHQL_ROWS, **A2A_ROWS, **GRPC_ROWS}
"""Every door, by the name that `doors.py` gives it."""
