"""The protocols clients speak."""

TRANSPORTS = {"graphql": "copilot_runtime.transports.graphql.endpoint:GraphQLEndpoint"}
"""Name → import string of every client protocol in this package."""
