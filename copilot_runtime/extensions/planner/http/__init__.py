"""Plans over HTTP: lists, trees of tasks, live events, and what people may do with them."""
