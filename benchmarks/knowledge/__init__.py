"""What knowledge costs: vectors, and beside them what else could have been taken."""
