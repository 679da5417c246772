"""What an operator does to a server: backup, migration, and a search for what is wrong."""
