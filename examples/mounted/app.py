"""A runtime inside an existing FastAPI application, behind its authentication.

    EXAMPLE_TOKEN=ann:open-sesame,bob:open-barley uvicorn --app-dir examples/mounted app:app

Then `<CopilotKit runtimeUrl="http://127.0.0.1:8000/api/copilotkit"
headers={{ authorization: "Bearer open-sesame" }}>`. Without a token the answer is 401, and each
person has threads of their own.
"""

import os
from secrets import compare_digest
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter

TOKENS = os.environ.get("EXAMPLE_TOKEN", "")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def find_user(token: str) -> str | None:
    """Return who has a token. A real application would verify a session or a JWT."""
    for entry in filter(None, TOKENS.split(",")):
        user, _, known = entry.rpartition(":")
        if compare_digest(token.encode(), known.encode()):
            return user or "ann"
    return None


def signed_in(connection: HTTPConnection, bearer: Bearer) -> None:
    """Let in whoever has a token, and remember who that is."""
    if not TOKENS:
        raise HTTPException(503, "Set EXAMPLE_TOKEN before starting this example.")
    user = find_user(bearer.credentials) if bearer else None
    if user is None:
        raise HTTPException(401, "Send the header: Authorization: Bearer <EXAMPLE_TOKEN>.")
    connection.state.user = user


def owner(connection: HTTPConnection) -> str:
    """Return to whom threads belong: the user whom `signed_in` found."""
    return connection.state.user


app = FastAPI(title="An application that was there before")


@app.get("/hello")
def hello() -> dict[str, str]:
    return {"message": "This route needs no token."}


if os.environ.get("OPENAI_API_KEY"):
    adapter = OpenAIAdapter(model="gpt-4o")
else:
    print("OPENAI_API_KEY is not set: the demo model answers. It is not a language model.")
    adapter = DemoAdapter()

runtime = CopilotRuntime(adapter=adapter, authenticate=owner)
runtime.mount(app, "/api/copilotkit", dependencies=[Depends(signed_in)])
