"""Every door of a server with everything, people and credentials: who comes in, who sees what."""
