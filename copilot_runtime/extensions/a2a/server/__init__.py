"""Our agents for clients of the Agent2Agent protocol (A2A)."""
