"""Conversations that survive a restart, each the property of one person.

    uvicorn --app-dir examples/threads app:app

Open http://127.0.0.1:8000/ and write `Bearer ann` into the authorization header; then `Bearer bob`.
Each sees only what they talked about. Stop the server, and start it again. On
the command line, the operator sees everybody's:

    copilot-runtime operate threads list --store sqlite:.copilot/example.db

With OPENAI_API_KEY set, a real model answers, and finds the names.
"""

import os

from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter, Settings
from copilot_runtime.base.errors import AuthenticationFailed

PEOPLE = {"Bearer ann": "ann", "Bearer bob": "bob"}
"""Stands for your sessions, or for the verified tokens of your identity provider."""


def whose(request: HTTPConnection) -> str:
    """Return whose request this is. What comes back is the owner of the threads it makes."""
    user = PEOPLE.get(request.headers.get("authorization", ""))
    if user is None:
        raise AuthenticationFailed("Please sign in.")
    return user


if os.environ.get("OPENAI_API_KEY"):
    adapter = OpenAIAdapter(model="gpt-4o")
else:
    print("OPENAI_API_KEY is not set: the demo model answers. It is not a language model.")
    adapter = DemoAdapter()

app = CopilotRuntime(
    adapter=adapter,
    authenticate=whose,
    settings=Settings(
        threads=os.environ.get("EXAMPLE_THREADS", "sqlite:.copilot/example.db"),
        thread_names=True,
        thread_retention=90 * 24 * 3600,
        when_busy="queue",
    ),
).app()
