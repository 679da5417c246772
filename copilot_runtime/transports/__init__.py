"""The protocols of clients, and what parts of a runtime answer beside them."""

TRANSPORTS = {
    "a2a": "copilot_runtime.transports.a2a.endpoint:A2aEndpoint",
    "agui": "copilot_runtime.transports.agui.endpoint:AguiEndpoint",
    "graphql": "copilot_runtime.transports.graphql.endpoint:GraphQLEndpoint",
    "mcp": "copilot_runtime.transports.mcp.endpoint:McpEndpoint",
    "remote_endpoint": "copilot_runtime.transports.remote_endpoint.endpoint:RemoteServer",
}
"""Name in the setting `transports` → import string of what makes it of `Services`."""

SIDE_ENDPOINTS = {
    "access": "copilot_runtime.transports.access.endpoint:AccessEndpoint",
    "analyst": "copilot_runtime.transports.analyst.endpoint:AnalystEndpoint",
    "events": "copilot_runtime.transports.events.endpoint:EventsEndpoint",
    "knowledge": "copilot_runtime.transports.knowledge.endpoint:KnowledgeEndpoint",
    "otlp": "copilot_runtime.transports.otlp.endpoint:OtlpEndpoint",
    "plans": "copilot_runtime.transports.plans.endpoint:PlansEndpoint",
    "thread_push": "copilot_runtime.transports.thread_push.endpoint:ThreadSocketEndpoint",
    "traces": "copilot_runtime.transports.traces.endpoint:TracesEndpoint",
}
"""What else is answered beside any transport, and carries no chats → its import string."""
