"""Draw pages while a model writes them."""
