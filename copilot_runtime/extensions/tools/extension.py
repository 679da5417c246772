"""Tools that an operator describes in a YAML file."""

from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.knowledge.build import select_by_policy
from copilot_runtime.extensions.knowledge.extension import find_knowledge
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.extensions.tracing.http.access import TraceAccess

_TOOL = "tool.ToolFunction"
"""The type of the resources that tools are."""


class ToolsExtension(Extension):
    """Adds the tools of the file that the setting `tools` names. Raises for a mistake in it."""

    name = "tools"
    requires = ("tracing", "access", "knowledge", "mcp", "grpc")

    def build(self, core: Core) -> Contribution:
        settings = narrow_settings(core.settings)
        if not settings.tools:
            return Contribution()
        from copilot_runtime.extensions.tools.catalog import ToolCatalog

        knowledge = find_knowledge(core.parts)
        catalog = ToolCatalog(
            settings.tools,
            read_resources=None if knowledge is None else knowledge.read_texts,
            select_names=select_by_policy(knowledge, _TOOL),
        )
        catalog.load()
        if knowledge is not None:
            mirrored = knowledge.mirror(_TOOL, "tools", catalog.describe_resources)
            catalog.on_change = mirrored.update
        is_readable = core.parts.get(TraceAccess).may_allow
        return Contribution(
            parts={ToolCatalog: catalog},
            sources=[catalog],
            schema="copilot_runtime.extensions.tools.graphql" if is_readable else "",
        )
