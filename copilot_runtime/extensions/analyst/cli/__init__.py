"""`copilot-runtime analyst`: questions about data, in a terminal."""
