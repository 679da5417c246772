"""What keeps requests and answers within bounds."""
