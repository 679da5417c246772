"""The pages for people: the chat at `/`, and one for each extension that has one."""

from collections.abc import Mapping, Sequence
from itertools import chain

from starlette.routing import BaseRoute

from copilot_runtime.actions.sources import ActionList
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.console.playground import (
    OperatorPlayground,
    PlaygroundEndpoint,
    mark_changes,
)
from copilot_runtime.extensions.generative_ui.options import GenerativeUi
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.transports.agui.overrides import Playground


class ConsoleExtension(Extension):
    """Adds the pages, which are served where the setting `console` is on."""

    name = "console"
    requires = ("generative_ui", "tracing")

    def build(self, core: Core) -> Contribution:
        self._core = core
        return Contribution(
            parts={Playground: OperatorPlayground(core.parts.get(TraceAccess))},
            stages=[mark_changes],
            endpoints=[PlaygroundEndpoint],
        )

    def pages(self, path: str) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.console.pages import ChatPage, Shell, build_pages, read_logo

        core = self._core
        options = core.parts.find(GenerativeUi)
        a2ui = None if options is None else options.a2ui
        settings = narrow_settings(core.settings)
        console = settings.console
        questions = settings.knowledge.suggestions
        lists = [source.ready for source in core.sources if isinstance(source, ActionList)]
        own = core.adapter.suggest([*chain.from_iterable(lists)])
        chosen = console.suggestions
        suggestions = dict(chosen if isinstance(chosen, Mapping) else {DEFAULT_AGENT: chosen})
        suggestions[DEFAULT_AGENT] = suggestions.get(DEFAULT_AGENT) or (*questions, *own)
        if questions and settings.planner.name:
            suggestions.setdefault(settings.planner.name, (" ".join(questions),))
        return build_pages(
            Shell(
                endpoint=path,
                pages=core.pages,
                keeps_traces=getattr(core.telemetry, "store", None) is not None,
                title=console.title,
                logo=read_logo(console.logo),
            ),
            ChatPage(
                suggestions=suggestions,
                introduction=core.adapter.introduction,
                is_demo=settings.adapter.name == "demo",
                history=settings.history,
                draws_surfaces=a2ui is None or a2ui.enabled,
            ),
        )
