"""A runtime inside an existing FastAPI application, behind its authentication.

    EXAMPLE_TOKEN=open-sesame uvicorn --app-dir examples/mounted app:app

Then `<CopilotKit runtimeUrl="http://127.0.0.1:8000/api/copilotkit"
headers={{ authorization: "Bearer open-sesame" }}>`. Without the token the answer is 401.
"""

import os
from secrets import compare_digest
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from copilot_runtime import CopilotRuntime, DemoAdapter, OpenAIAdapter

TOKEN = os.environ.get("EXAMPLE_TOKEN", "")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def signed_in(bearer: Bearer) -> None:
    """Let in whoever has the token. A real application would verify a session or a JWT."""
    if not TOKEN:
        raise HTTPException(503, "Set EXAMPLE_TOKEN before starting this example.")
    if bearer is None or not compare_digest(bearer.credentials.encode(), TOKEN.encode()):
        raise HTTPException(401, "Send the header: Authorization: Bearer <EXAMPLE_TOKEN>.")


app = FastAPI(title="An application that was there before")


@app.get("/hello")
def hello() -> dict[str, str]:
    return {"message": "This route needs no token."}


if os.environ.get("OPENAI_API_KEY"):
    adapter = OpenAIAdapter(model="gpt-4o")
else:
    print("OPENAI_API_KEY is not set: the demo model answers. It is not a language model.")
    adapter = DemoAdapter()

runtime = CopilotRuntime(adapter=adapter)
runtime.mount(app, "/api/copilotkit", dependencies=[Depends(signed_in)])
