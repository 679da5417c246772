"""How much a token stream costs on its way through a server, next to peers in the same run."""
