"""Draws the surfaces that an agent writes."""
