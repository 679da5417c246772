"""The action and the endpoint work. Conversations are in hours.test.yml."""

from app import HOURS, app
from fastapi.testclient import TestClient


def test_the_endpoint_lists_the_agent() -> None:
    with TestClient(app, base_url="http://localhost") as client:
        assert "default" in client.get("/api/copilotkit/info").json()["agents"]


def test_the_library_is_closed_on_sundays() -> None:
    assert HOURS["Sunday"] == "closed"
