"""The OpenAPI description of the route; `BackgroundEndpoint` handles the requests."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from copilot_runtime.transports.rest_route import declare_routes, describe_body


class BackgroundRequest(BaseModel):
    """A question, and where its answer is posted. Further fields are those of an AG-UI run."""

    webhook: str = Field(
        description="URL that gets the answer, signed as in Standard Webhooks.",
        examples=["https://example.com/answers"],
    )
    messages: list[dict[str, Any]] = Field(
        examples=[[{"id": "m1", "role": "user", "content": "Write the report."}]]
    )
    threadId: str | None = Field(default=None, examples=["report-42"])  # noqa: N815  # of AG-UI
    runId: str | None = Field(  # noqa: N815  # of AG-UI
        default=None,
        description="A repeated request with the same identifier starts nothing.",
        examples=["report-42-1"],
    )


class BackgroundModel(BaseModel):
    """The run that was started."""

    threadId: str = Field(examples=["report-42"])  # noqa: N815  # of AG-UI
    runId: str = Field(examples=["report-42-1"])  # noqa: N815  # of AG-UI


@declare_routes("agents")
def rest_routes(agents: APIRouter) -> None:
    """Declare the route of background runs."""

    @agents.post(
        "/background/{agent}",
        response_model=BackgroundModel,
        status_code=202,
        openapi_extra=describe_body(BackgroundRequest),
    )
    async def run_in_background(agent: Annotated[str, Path(examples=["default"])]) -> None:
        """Start a run that needs no reader: its end is posted to a URL (webhook)."""
