"""Traces over HTTP, for operators: lists, spans, a live stream, queries, feedback."""
