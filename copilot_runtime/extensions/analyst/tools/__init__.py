"""The tools of the analyst: one definition for models, MCP clients, GraphQL and programs."""
