"""The card of an agent: its name, skills, and URL."""

from collections.abc import Sequence
from urllib.parse import quote

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
)
from google.protobuf.json_format import ParseDict

from copilot_runtime import __version__
from copilot_runtime.api.agent import Agent
from copilot_runtime.extensions.generative_ui.a2ui.operations import BASIC_CATALOG
from copilot_runtime.transports.request import Request

A2UI = "https://a2ui.org/a2a-extension/a2ui/v0.9"
"""The URI of the extension for A2UI surfaces."""

_INTERFACES = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"))
_INPUTS = ("text/plain", "application/json", "image/*", "audio/*", "application/pdf")
_OUTPUTS = ("text/plain", "application/json")


def build_card(name: str, agent: Agent, url: str, *, has_a2ui: bool) -> AgentCard:
    """Return the card of an agent, whose endpoint is below the runtime's address `url`."""
    description = agent.description or f"The agent {name}."
    place = f"{url}/a2a/{quote(name, safe='')}"
    return AgentCard(
        name=name,
        description=description,
        version=__version__,
        supported_interfaces=[
            AgentInterface(url=place, protocol_binding=binding, protocol_version=version)
            for binding, version in _INTERFACES
        ],
        capabilities=AgentCapabilities(
            streaming=True, extensions=_list_extensions() if has_a2ui else ()
        ),
        default_input_modes=_INPUTS,
        default_output_modes=_OUTPUTS,
        skills=[AgentSkill(id=name, name=name, description=description, tags=["chat"])],
    )


def find_url(request: Request, setting: str) -> str:
    """Return the runtime's public URL: that of the settings, or of the request."""
    if setting:
        return setting.rstrip("/")
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.split(b"?")[0].decode("latin-1").removesuffix("/")
    base = path.removesuffix(f"/{request.path}")
    return f"{request.scope.get('scheme', 'http')}://{request.headers.get('host', '')}{base}"


def _list_extensions() -> Sequence[AgentExtension]:
    extension = AgentExtension(uri=A2UI, description="Surfaces, for clients that draw them.")
    ParseDict({"supportedCatalogIds": [BASIC_CATALOG]}, extension.params)
    return [extension]
