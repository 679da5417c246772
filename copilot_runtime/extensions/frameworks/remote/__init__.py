"""Actions and agents behind a CopilotKit remote endpoint: the Python package `copilotkit`."""

from copilot_runtime.extensions.frameworks.remote.endpoint import RemoteAgent, RemoteEndpoint

__all__ = ["RemoteAgent", "RemoteEndpoint"]
