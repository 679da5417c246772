/** Where the Python runtime listens: the URL that clients of CopilotKit 1.10 use as well. */
export const runtimeUrl = import.meta.env.VITE_RUNTIME_URL ?? "http://127.0.0.1:8000/graphql";

/** The name under which `server.py` registers its agent. */
export const agentId = "trip";
