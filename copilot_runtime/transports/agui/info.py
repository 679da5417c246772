"""What a client is told about this runtime before it asks anything."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime import __version__
from copilot_runtime.interfaces import Agent

_THREADS = {"list": True, "inspect": True, "mutations": True, "realtimeMetadata": False}


def info(agents: Mapping[str, Agent], *, transcription: bool) -> dict[str, Any]:
    """Return the body of `/info`, which is also that of `{"method": "info"}`.

    It sends no licence status: nothing here needs a licence, and none is claimed.
    """
    return {
        "version": __version__,
        "agents": {name: _agent(name, agent) for name, agent in agents.items()},
        "audioFileTranscriptionEnabled": transcription,
        "mode": "sse",
        "threadEndpoints": _THREADS,
        "singleRoute": {"resourceOperations": True, "threadEndpoints": _THREADS},
        "suggestions": True,
        "a2uiEnabled": False,
        "openGenerativeUIEnabled": False,
        "telemetryDisabled": True,
    }


def _agent(name: str, agent: Agent) -> dict[str, Any]:
    return {
        "name": name,
        "description": agent.description or "",
        "className": type(agent).__name__,
    }
