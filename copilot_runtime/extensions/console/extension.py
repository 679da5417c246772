"""The pages for people: the chat at `/`, and one for each extension that has one."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.generative_ui.options import GenerativeUi
from copilot_runtime.extensions.settings import narrow_settings


class ConsoleExtension(Extension):
    """Adds the pages, which are served where the setting `console` is on."""

    name = "console"
    requires = ("generative_ui",)

    def build(self, core: Core) -> Contribution:
        self._core = core
        return Contribution()

    def pages(self, path: str) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.console.pages import build_pages

        core = self._core
        options = core.parts.find(GenerativeUi)
        a2ui = None if options is None else options.a2ui
        return build_pages(
            path,
            core.pages,
            suggestions=(
                *narrow_settings(core.settings).knowledge.suggestions,
                *core.adapter.suggestions,
            ),
            keeps_traces=getattr(core.telemetry, "store", None) is not None,
            draws_surfaces=a2ui is None or a2ui.enabled,
        )
