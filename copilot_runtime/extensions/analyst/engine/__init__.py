"""DuckDB as the engine of the analyst: sources are copied, questions read the copies."""
