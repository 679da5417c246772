"""Our agents for A2A clients. Agents that speak A2A elsewhere need no part of a runtime."""

from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.settings import narrow_settings


class A2aExtension(Extension):
    """Answers A2A clients, if the setting `serve_a2a` says so."""

    name = "a2a"
    requires = ("generative_ui",)

    def build(self, core: Core) -> Contribution:
        return Contribution(transports=["a2a"] if narrow_settings(core.settings).serve_a2a else [])
