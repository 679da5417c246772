"""Changes of threads, told to pages: as server-sent events, and to CopilotKit's own client."""
