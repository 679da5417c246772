"""The protocols of clients."""

TRANSPORTS = {
    "agui": "copilot_runtime.transports.agui.endpoint:AguiEndpoint",
    "graphql": "copilot_runtime.transports.graphql.endpoint:GraphQLEndpoint",
    "knowledge": "copilot_runtime.transports.knowledge.endpoint:KnowledgeEndpoint",
    "mcp": "copilot_runtime.transports.mcp.endpoint:McpEndpoint",
    "otlp": "copilot_runtime.transports.otlp.endpoint:OtlpEndpoint",
    "remote_endpoint": "copilot_runtime.transports.remote_endpoint.endpoint:RemoteServer",
    "traces": "copilot_runtime.transports.traces.endpoint:TracesEndpoint",
}
"""Name in the setting `transports` → import string of what makes it of `Services`."""
