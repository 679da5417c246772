"""How much a run of AG-UI costs on its way through a server, next to peers in the same run."""
