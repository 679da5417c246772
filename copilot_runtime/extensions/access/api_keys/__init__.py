"""Keys by which programs sign in: how they look, and where they are kept."""
