"""The pages for people: the chat at `/`, and one for each extension that has one."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from copilot_runtime.adapters.demo import DemoAdapter
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
        from copilot_runtime.extensions.console.pages import Shell, build_pages, read_logo

        core = self._core
        options = core.parts.find(GenerativeUi)
        a2ui = None if options is None else options.a2ui
        settings = narrow_settings(core.settings)
        console = settings.console
        draws_surfaces = a2ui is None or a2ui.enabled
        own, others = core.adapter.suggestions, settings.knowledge.suggestions
        is_demo = own is DemoAdapter.suggestions
        if is_demo and draws_surfaces:
            own = (own[0], "Draw a form for a booking", *own[1:])
        suggestions = {"default": console.suggestions or (*others[:1], *own)}
        if is_demo and others and settings.planner.name:
            suggestions[settings.planner.name] = (f"Plan a trip: {' '.join(others)}",)
        return build_pages(
            Shell(
                endpoint=path,
                pages=core.pages,
                keeps_traces=getattr(core.telemetry, "store", None) is not None,
                title=console.title,
                logo=read_logo(console.logo),
            ),
            suggestions=suggestions,
            is_demo=is_demo,
            history=settings.history,
            draws_surfaces=draws_surfaces,
        )
