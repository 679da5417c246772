"""How often and how much somebody may ask: of requests, runs, tokens and money."""
