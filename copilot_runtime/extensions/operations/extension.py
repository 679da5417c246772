"""Backups, migrations and the doctor, which know the stores of all extensions; commands alone."""

from copilot_runtime.app.extension import Extension


class OperationsExtension(Extension):
    """Adds nothing to a runtime: its commands read the settings."""

    name = "operations"
    requires = ("tracing", "access", "cluster", "knowledge", "events", "planner", "grpc", "mcp")
