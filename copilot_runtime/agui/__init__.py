"""Decode and encode AG-UI, for its transport and for agents behind it."""
