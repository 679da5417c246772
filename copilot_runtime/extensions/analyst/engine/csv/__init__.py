"""A CSV file as a table: where its columns are, what is in them, and what is not certain."""
