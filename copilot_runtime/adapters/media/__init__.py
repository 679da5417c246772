"""The media of requests to models: types, limits of providers, and files in results."""
