"""User interfaces that models make: A2UI, MCP Apps and Open Generative UI, around any agent."""
