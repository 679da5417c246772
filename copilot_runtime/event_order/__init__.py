"""The order of events that every client accepts."""
