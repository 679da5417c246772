"""The public names of the ingestion of files."""
