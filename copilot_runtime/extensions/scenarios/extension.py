"""Scenario tests with scripted models, tool stubs and scripted answers of users."""

from copilot_runtime.app.extension import Extension


class ScenariosExtension(Extension):
    """Adds only the command `copilot-runtime test`, and nothing to a runtime."""

    name = "scenarios"
    requires = ("tracing", "knowledge", "assistants", "planner")
