"""Draws the pages that a model writes, while it writes them."""
