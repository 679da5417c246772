"""The ways by which messages go from one server process to another."""
