"""Each service as an adapter around what the runtime has: it reads a message, asks, writes one."""
