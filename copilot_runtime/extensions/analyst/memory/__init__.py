"""What the analyst learns about a table over time, for the person it learned it from."""
