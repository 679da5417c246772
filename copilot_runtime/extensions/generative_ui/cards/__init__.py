"""A2UI surfaces for the activities of our own agents."""
