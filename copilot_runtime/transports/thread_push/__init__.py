"""Push changes of threads as server-sent events or over CopilotKit's WebSocket."""
