"""The words of the AG-UI protocol, for the transport that speaks it and the agents that do."""
