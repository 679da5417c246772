"""What keeping threads costs: append, list and replay, in a store that is already full."""
