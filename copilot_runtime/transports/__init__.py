"""Client protocols."""

TRANSPORTS = {
    "a2a": "copilot_runtime.extensions.a2a.server.endpoint:A2aEndpoint",
    "agui": "copilot_runtime.transports.agui.endpoint:AguiEndpoint",
    "graphql": "copilot_runtime.transports.graphql.endpoint:GraphQLEndpoint",
    "mcp": "copilot_runtime.extensions.mcp.server.endpoint:McpEndpoint",
    "remote_endpoint": "copilot_runtime.extensions.frameworks.remote.server.endpoint:RemoteServer",
}
"""Name in the setting `transports` to import string of a factory that takes `Services`."""
