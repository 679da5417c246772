"""The ways by which server processes share threads and reach each other."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.cluster.redis_server import redis_server


@pytest.fixture(params=["unix", "postgres", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of servers that share threads."""
    if request.param == "unix":
        yield {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    elif request.param == "postgres":
        yield {"threads": request.getfixturevalue("database")}
    else:
        url = request.getfixturevalue("database")
        with redis_server() as server, server.running():
            yield {"threads": url, "carrier": server.url}
