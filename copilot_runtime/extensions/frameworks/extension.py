"""Agents of other frameworks; of these, remote endpoints of CopilotKit need a part of a runtime."""

from copilot_runtime.api.argument_checks import check_list
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.settings import narrow_settings


class FrameworksExtension(Extension):
    """Adds the actions and agents of remote endpoints, and offers ours to a Node runtime."""

    name = "frameworks"
    requires = ("generative_ui",)
    options = ("remote_endpoints",)

    def build(self, core: Core) -> Contribution:
        urls = core.options.get("remote_endpoints") or ()
        check_list("remote_endpoints", urls, "'http://localhost:9000/copilotkit'")
        offers = ["remote_endpoint"] if narrow_settings(core.settings).serve_remote else []
        if not urls:
            return Contribution(transports=offers)
        from copilot_runtime.extensions.frameworks.remote.endpoint import (
            AgentResolver,
            coerce_endpoints,
        )

        endpoints = coerce_endpoints(urls, core.http_client)
        return Contribution(
            sources=endpoints,
            resolve_agents=lambda agents: AgentResolver(agents, endpoints),
            transports=offers,
        )
