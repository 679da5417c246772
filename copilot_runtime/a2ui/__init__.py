"""A2UI 0.9: user interfaces as data, which a page draws with components of its own catalog."""
