"""Tests of scenarios with models, tools and people that play a part; commands alone."""

from copilot_runtime.app.extension import Extension


class ScenariosExtension(Extension):
    """Adds nothing to a runtime: `copilot-runtime test` runs one."""

    name = "scenarios"
    requires = ("tracing", "knowledge", "assistants", "planner")
