"""The extensions of this package. The core imports none of them: it reads this table."""

EXTENSIONS = {
    "tracing": "copilot_runtime.extensions.tracing.extension:TracingExtension",
    "access": "copilot_runtime.extensions.access.extension:AccessExtension",
    "cluster": "copilot_runtime.extensions.cluster.extension:ClusterExtension",
    "transcription": "copilot_runtime.extensions.transcription.extension:TranscriptionExtension",
    "knowledge": "copilot_runtime.extensions.knowledge.extension:KnowledgeExtension",
    "events": "copilot_runtime.extensions.events.extension:EventsExtension",
    "tools": "copilot_runtime.extensions.tools.extension:ToolsExtension",
    "frameworks": "copilot_runtime.extensions.frameworks.extension:FrameworksExtension",
    "mcp": "copilot_runtime.extensions.mcp.extension:McpExtension",
    "assistants": "copilot_runtime.extensions.assistants.extension:AssistantsExtension",
    "analyst": "copilot_runtime.extensions.analyst.extension:AnalystExtension",
    "planner": "copilot_runtime.extensions.planner.extension:PlannerExtension",
    "generative_ui": "copilot_runtime.extensions.generative_ui.extension:GenerativeUiExtension",
    "guardrails": "copilot_runtime.extensions.guardrails.extension:GuardrailsExtension",
    "a2a": "copilot_runtime.extensions.a2a.extension:A2aExtension",
    "grpc": "copilot_runtime.extensions.grpc.extension:GrpcExtension",
    "console": "copilot_runtime.extensions.console.extension:ConsoleExtension",
}
"""Name → import string, in the order in which they are built: each after those whose parts it uses.

A plugin adds a name by an entry point of the group `copilot_runtime.extensions`.
"""

SCHEMAS = {
    "knowledge": "copilot_runtime.extensions.knowledge.graphql",
    "traces": "copilot_runtime.extensions.tracing.graphql",
    "plans": "copilot_runtime.extensions.planner.graphql",
    "tools": "copilot_runtime.extensions.tools.graphql",
    "events": "copilot_runtime.extensions.events.graphql",
    "analyst": "copilot_runtime.extensions.analyst.graphql",
}
"""Modules whose `ROOTS` extend the GraphQL schema, for those who print it without a runtime."""

SETTINGS = "copilot_runtime.extensions.settings:Settings"
"""Import string of the class of all settings: those of the core, and of these extensions."""

VARIABLES = {
    "telemetry": "copilot_runtime.extensions.tracing.variables:TELEMETRY",
    "analyst": "copilot_runtime.extensions.analyst.variables:ANALYST",
    "knowledge": "copilot_runtime.extensions.knowledge.variables:KNOWLEDGE",
}
"""Section → its `SectionVariables`: environment variables of other programs that are read, too."""
