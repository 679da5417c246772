"""Metrics that an operator defined, as SQL that can be trusted."""
