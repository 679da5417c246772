"""A provider of models, and a remote agent, as tests of agents have them."""

from tests.agents.conftest import agent, provider

__all__ = ["agent", "provider"]
