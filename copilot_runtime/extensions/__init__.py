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
    "webhooks": "copilot_runtime.extensions.webhooks.extension:WebhooksExtension",
    "grpc": "copilot_runtime.extensions.grpc.extension:GrpcExtension",
    "scenarios": "copilot_runtime.extensions.scenarios.extension:ScenariosExtension",
    "operations": "copilot_runtime.extensions.operations.extension:OperationsExtension",
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
    "knowledge": "copilot_runtime.extensions.knowledge.settings:KNOWLEDGE",
}
"""Section → its `SectionVariables`: environment variables of other programs that are read, too."""

COMMANDS = {
    "test": "copilot_runtime.extensions.scenarios.cli:test",
    "doctor": "copilot_runtime.extensions.operations.cli:doctor",
    "knowledge ingest": "copilot_runtime.extensions.knowledge.cli.ingest:ingest",
    "knowledge search": "copilot_runtime.extensions.knowledge.cli.knowledge:search",
    "knowledge graph": "copilot_runtime.extensions.knowledge.cli.knowledge:graph",
    "knowledge ontology": "copilot_runtime.extensions.knowledge.cli.knowledge:ontology",
    "knowledge memory": "copilot_runtime.extensions.knowledge.cli.knowledge:memory",
    "knowledge policy": "copilot_runtime.extensions.knowledge.cli.policy:policy",
    "analyst": "copilot_runtime.extensions.analyst.cli.commands:analyst",
    "plans": "copilot_runtime.extensions.planner.cli.commands:plans",
    "traces": "copilot_runtime.extensions.tracing.cli.traces:traces",
    "operate backup": "copilot_runtime.extensions.operations.cli:backup",
    "operate restore": "copilot_runtime.extensions.operations.cli:restore",
    "operate migrate": "copilot_runtime.extensions.operations.cli:migrate",
    "operate keys": "copilot_runtime.extensions.access.cli.keys:keys",
    "operate audit": "copilot_runtime.extensions.access.cli.audit:audit",
    "operate events": "copilot_runtime.extensions.events.cli:events",
    "develop mcp": "copilot_runtime.extensions.mcp.cli:mcp",
    "develop tools": "copilot_runtime.extensions.tools.cli:tools",
    "develop codegen": "copilot_runtime.extensions.grpc.cli:codegen",
}
"""Command, or group and command → import string of its function or of a Typer application."""

GROUPS = {
    "knowledge": "Ingest and search documents; graph, memory and policy.",
    "operate": "Back up and migrate; keys, threads, events and audit log.",
    "develop": "List plugins and tools; MCP server, GraphQL schema, gRPC.",
}
"""Group of commands of several extensions → its help."""

SERVERS = {"services": "copilot_runtime.extensions.grpc.serve:serve_services"}
"""Option of `serve` → import string of the function that serves this instead of HTTP."""

_HERE = "copilot_runtime.extensions"

TABLES = (
    ("extension", f"{_HERE}:EXTENSIONS", _HERE),
    ("way to sign in", f"{_HERE}.access.authentication:SCHEMES", "copilot_runtime.authentication"),
    ("kind of policy", f"{_HERE}.knowledge.policies:POLICIES", "copilot_runtime.policies"),
    ("gRPC service", f"{_HERE}.grpc:RPC_SERVICES", "copilot_runtime.grpc_services"),
)
"""Registries for `copilot-runtime develop plugins`: noun, table, and group of entry points."""

NEEDS = {
    ("agent", "langgraph"): ("langgraph-sdk", "langgraph"),
    ("agent", "langgraph_inprocess"): ("langgraph", "langgraph-inprocess"),
    ("agent", "openai_agents"): ("openai-agents", "openai-agents"),
    ("agent", "pydantic_ai"): ("pydantic-ai-slim", "pydantic-ai"),
    ("action source", "mcp"): ("mcp", "mcp"),
    ("kind of policy", "cedar"): ("cedarpy", "cedar"),
    ("kind of policy", "rego"): ("regopy", "rego"),
    ("transport", "mcp"): ("mcp", "mcp"),
    ("way to sign in", "jwt"): ("pyjwt", "auth"),
}
"""Third-party packages of entries of these and of the core's registries, and their extras."""
