"""Builds the parts of a runtime: what a program gave, or else what its settings say."""
