"""Offer tools of MCP servers that have user interfaces, and execute their calls."""
