"""Settings that give away more than their operator may have meant are named."""

import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.operations.doctor.risks import RISKS, list_risks
from copilot_runtime.testing import ScriptedAdapter
from tests.in_one_test import in_one_test

_ANYWHERE = ["10.0.0.0/8", "0.0.0.0/0"]
_PROXY = {"authenticate": ["proxy"]}
_CARELESS: dict[str, dict[str, Any]] = {
    "sign-in": {
        "access": _PROXY,
        "proxy": {"sign_in_addresses": _ANYWHERE, "roles_header": "x-roles"},
    },
    "operators": {
        "access": {"authenticate": ["api_keys"], "anonymous": True, "default_roles": ["operator"]}
    },
    "jwt keys": {"access": {"authenticate": ["jwt"]}, "jwt": {"issuer": "http://id.example"}},
    "addresses": {"proxy": {"addresses": ["::/0"]}},
    "cors": {
        "host": "0.0.0.0",
        "access": _PROXY,
        "proxy": {"sign_in_addresses": ["10.0.0.7"]},
    },
    "secrets": {"telemetry": {"metrics_token": "short"}},
    "encryption": {"mcp": {"servers": ["http://mcp.example/mcp?api_key=k3y-of-mine"]}},
    "databases": {"threads": "postgresql://app@db.example/app?sslmode=disable"},
    "grpc": {"grpc": {"services": ["graph"], "address": "0.0.0.0:50051"}},
    "traces": {"telemetry": {"store": "sqlite:traces.db", "content": "local", "retention": 0}},
    "limits": {"access": {"authenticate": ["api_keys"], "anonymous": True}},
    "threads": {
        "access": {"authenticate": ["api_keys"], "anonymous": True},
        "threads": "sqlite:threads.db",
    },
    "headers": {"forward_headers": ["*"]},
    "webhooks": {"webhooks": {"hosts": ["*"]}},
    "logs": {"host": "10.0.0.8", "log_level": "debug"},
}


def test_every_risk_is_tested() -> None:
    assert [risk.name for risk in RISKS] == [*_CARELESS]


@in_one_test("name", [*_CARELESS])
def test_careless_settings_are_named(name: str) -> None:
    found = list_risks(
        Settings.model_validate({"threads": "memory", **_CARELESS[name]}), has_users=False
    )
    assert name in [risk.name for risk in found]


@in_one_test(
    "settings",
    [
        {},
        {"host": "0.0.0.0", "access": {"authenticate": ["api_keys"]}},
        {
            "access": _PROXY,
            "proxy": {"sign_in_addresses": ["10.0.0.0/8", "fc00::/7", "unix"]},
            "cors_origins": ["https://app.example"],
        },
        {"cors_origins": ["https://app.example"], "secret": "s" * 32},
        {"mcp": {"servers": ["http://mcp:8000/mcp?api_key=k3y-of-mine", "https://mcp.example"]}},
        {"threads": "postgresql://app@postgres/app?sslmode=disable"},
        {"telemetry": {"content": "local", "store": "sqlite:traces.db"}},
        {"log_level": "debug"},
    ],
)
def test_careful_settings_are_not_named(settings: dict[str, Any]) -> None:
    assert list_risks(Settings.model_validate(settings), has_users=True) == []


def test_a_server_names_careless_settings_at_its_start(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(threads="memory", forward_headers=("*",), secret="s" * 16)
    runtime = CopilotRuntime(adapter=ScriptedAdapter(), settings=settings)
    with caplog.at_level(logging.WARNING), TestClient(runtime.app()):
        pass

    found = [one.message for one in caplog.records if "operations" in one.name]
    assert [text.partition(",")[0].partition(":")[0] for text in found] == [
        "A secret has less than 32 bytes (secret",
        "All headers of requests but cookies reach every agent and action",
    ]
