"""Generative UI for any agent: A2UI, MCP Apps and Open Generative UI."""
