"""Assistants that an operator describes in Markdown files."""

from copilot_runtime.api.run_input import Parameters
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.knowledge.build import select_by_policy
from copilot_runtime.extensions.knowledge.extension import find_knowledge
from copilot_runtime.extensions.settings import narrow_settings

_ASSISTANT = "common.Assistant"
"""The type of the resources that assistants are."""


class AssistantsExtension(Extension):
    """Adds the assistants of a folder. Raises `ConfigurationFailed` for files with mistakes."""

    name = "assistants"
    requires = ("knowledge",)

    def build(self, core: Core) -> Contribution:
        settings = narrow_settings(core.settings)
        if not settings.assistants.folder:
            return Contribution()
        from copilot_runtime.extensions.assistants.agent import AssistantAgent
        from copilot_runtime.extensions.assistants.agents import AssistantAgents
        from copilot_runtime.extensions.assistants.folder import AssistantFolder

        knowledge = find_knowledge(core.parts)
        folder = AssistantFolder(
            settings.assistants.folder, select_names=select_by_policy(knowledge, _ASSISTANT)
        )
        folder.load()
        if knowledge is not None:
            mirrored = knowledge.mirror(_ASSISTANT, "assistants", folder.describe_resources)
            folder.on_change = mirrored.update

        def build(name: str) -> AssistantAgent:
            return AssistantAgent(
                name,
                folder,
                core.adapter,
                parameters=Parameters(**settings.parameters.model_dump()),
                action_timeout=settings.action_timeout,
                retriever=knowledge.retriever() if knowledge else None,
                files=knowledge.files() if knowledge else None,
                window_rules=settings.assistants.window,
            )

        core.agents.add_files(AssistantAgents(folder, build), lambda: folder.definitions)
        return Contribution()
