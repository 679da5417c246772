"""Runtimes whose services listen on loopback, and clients of them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.extensions.grpc.client import ServiceChannel, connect
from copilot_runtime.extensions.grpc.server import GrpcServer

SECRET = "a secret of thirty-two characters"


@dataclass(frozen=True)
class Served:
    """A runtime, and where its services are."""

    runtime: CopilotRuntime
    server: GrpcServer

    def connect(self, service: str = "shop", **options: Any) -> ServiceChannel:
        """Return a connection of a service that knows the secret."""
        every: dict[str, Any] = {"service": service, "secrets": [SECRET], **options}
        return connect(self.server.address, **every)


def build_settings(*services: str, roles: Sequence[str] = ("user",), **more: Any) -> Settings:
    """Return settings by which services sign in with the secret."""
    grpc = {"services": services, "address": "127.0.0.1:0", **more.pop("grpc", {})}
    sections: dict[str, Any] = {
        "access": {"authenticate": ["service_tokens"]},
        "service_tokens": {"secrets": [SECRET], "roles": roles, **more.pop("service_tokens", {})},
        "threads": "memory",
        "stop_timeout": 2,
        "grpc": grpc,
        **more,
    }
    return Settings(**sections)


@asynccontextmanager
async def serve(settings: Settings, adapter: Any = None, **options: Any) -> AsyncGenerator[Served]:
    """Serve a runtime over gRPC alone."""
    adapter = adapter or ScriptedAdapter(say("Hello"))
    runtime = CopilotRuntime(adapter, settings=settings, **options)
    async with runtime.running():
        yield Served(runtime, runtime.get(GrpcServer))
