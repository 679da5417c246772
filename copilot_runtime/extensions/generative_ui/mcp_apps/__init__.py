"""Offers the tools of MCP servers that have user interfaces, and answers their calls."""
