"""Asks a data analyst questions, and compares its answers with those of reference SQL."""
