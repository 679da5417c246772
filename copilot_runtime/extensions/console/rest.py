"""The route of the playground as `/docs` describes it; `playground.py` answers the requests."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from copilot_runtime.transports.rest_route import declare_routes


class ToolModel(BaseModel):
    """A tool of the server."""

    name: str = Field(examples=["get_time"])
    description: str = Field(examples=["Tell the time in a city."])


class PlaygroundModel(BaseModel):
    """The values of an agent that an operator may change for one question."""

    has_instructions: bool = Field(
        description="Whether instructions, model and parameters can be changed.", examples=[True]
    )
    instructions: str | None = Field(
        description="null if a function writes them, or if they are secret.",
        examples=["Answer in one sentence."],
    )
    is_secret: bool = Field(
        description="Whether the instructions are not shown, since traces keep no content.",
        examples=[False],
    )
    tools: list[ToolModel]


@declare_routes("playground", "/playground")
def rest_routes(routes: APIRouter) -> None:
    """Declare the route of the playground."""

    @routes.get("/{agent}", response_model=PlaygroundModel)
    async def playground(agent: Annotated[str, Path(examples=["default"])]) -> None:
        """Answer operators with what they may change of an agent for one question."""
