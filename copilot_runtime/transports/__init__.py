"""The protocols of clients, and what parts of a runtime answer beside them."""

TRANSPORTS = {
    "a2a": "copilot_runtime.extensions.a2a.server.endpoint:A2aEndpoint",
    "agui": "copilot_runtime.transports.agui.endpoint:AguiEndpoint",
    "graphql": "copilot_runtime.transports.graphql.endpoint:GraphQLEndpoint",
    "mcp": "copilot_runtime.extensions.mcp.server.endpoint:McpEndpoint",
    "remote_endpoint": "copilot_runtime.extensions.frameworks.remote.server.endpoint:RemoteServer",
}
"""Name in the setting `transports` → import string of what makes it of `Services`."""

SIDE_ENDPOINTS = {
    "access": "copilot_runtime.extensions.access.http.endpoint:AccessEndpoint",
    "analyst": "copilot_runtime.extensions.analyst.http.endpoint:AnalystEndpoint",
    "events": "copilot_runtime.extensions.events.http.endpoint:EventsEndpoint",
    "knowledge": "copilot_runtime.extensions.knowledge.http:KnowledgeEndpoint",
    "otlp": "copilot_runtime.extensions.tracing.otlp.endpoint:OtlpEndpoint",
    "plans": "copilot_runtime.extensions.planner.http.endpoint:PlansEndpoint",
    "thread_push": "copilot_runtime.transports.thread_push.endpoint:ThreadSocketEndpoint",
    "traces": "copilot_runtime.extensions.tracing.http.endpoint:TracesEndpoint",
}
"""What else is answered beside any transport, and carries no chats → its import string."""
