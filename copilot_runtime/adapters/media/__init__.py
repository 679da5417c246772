"""Media in requests to models: their true types, the limits of providers, and what is left out."""
