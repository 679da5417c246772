"""OpenAPI declarations of the access routes, for `/docs`; `endpoint.py` handles the requests."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from copilot_runtime.extensions.access.api_keys.issue import NewKey
from copilot_runtime.transports.rest_route import declare_routes, describe_body


class LimitStatusModel(BaseModel):
    """A limit, how much of it is used, and when all of it is there again."""

    level: str = Field(examples=["user"])
    kind: str = Field(examples=["tokens"])
    used: float = Field(examples=[42_000])
    limit: float = Field(examples=[200_000])
    seconds: int = Field(
        description="The time that the limit is for; 0 for `runs_at_once`, runs at one time, and "
        "for `storage`, bytes.",
        examples=[86_400],
    )
    seconds_left: int = Field(examples=[3600])


class WhoamiModel(BaseModel):
    """Who asks, and what they may do."""

    user: str | None = Field(examples=["ann"])
    tenant: str | None = Field(examples=["acme"])
    owner: str | None = Field(examples=["tenant:acme/ann"])
    roles: list[str] = Field(examples=[["user"]])
    unknown_roles: list[str] = Field(
        description="Those of them that the settings do not know: they allow nothing.",
        examples=[["offline_access"]],
    )
    scopes: list[str] = Field(examples=[["runs:start", "threads:read"]])
    method: str | None = Field(examples=["api_key"])
    key: str | None = Field(examples=["0123456789abcdef"])
    is_operator: bool = Field(examples=[False])
    limits: list[LimitStatusModel]


class AccessModel(BaseModel):
    """The authentication schemes, scopes and roles of this server."""

    is_open: bool = Field(description="Whether authentication is not required.", examples=[False])
    ways: list[str] = Field(examples=[["api_keys", "jwt"]])
    scopes: dict[str, str] = Field(examples=[{"threads:read": "list and read their threads"}])
    roles: dict[str, list[str]] = Field(examples=[{"reader": ["data:read", "threads:read"]}])
    default_roles: list[str] = Field(examples=[["user"]])
    operators: list[str] = Field(examples=[["ann"]])
    limits: dict[str, Any] = Field(examples=[{"requests_per_user": ["120/minute"]}])
    audit: bool = Field(description="Whether an audit log is written.", examples=[True])
    keys: list[dict[str, Any]] = Field(
        description="The newest 1,000, without their secrets.",
        examples=[[{"prefix": "cpk_0123456789abcdef", "name": "ci", "state": "active"}]],
    )
    key_count: int = Field(examples=[1])


class DeletedModel(BaseModel):
    """How many threads were deleted, and whether there are more: then ask again."""

    deleted: int = Field(examples=[200])
    more: bool = Field(examples=[True])


@declare_routes("access", "/access")
def rest_routes(routes: APIRouter) -> None:
    """Declare the routes of access."""

    @routes.get("", response_model=AccessModel)
    async def access() -> None:
        """Answer operators with ways to sign in, roles, keys and limits."""

    @routes.get("/whoami", response_model=WhoamiModel)
    async def whoami() -> None:
        """Answer with who asks, what they may do, and how much of their limits is used."""

    @routes.post(
        "/keys",
        status_code=201,
        response_model=dict[str, Any],
        openapi_extra=describe_body(NewKey),
    )
    async def create_key() -> None:
        """Make an API key, whose text is in `key` and is not shown again. Needs `operate`."""

    @routes.delete("/keys/{key}", response_model=dict[str, Any])
    async def revoke_key(key: str) -> None:
        """Revoke the API key with this prefix. Needs `operate`."""

    @routes.delete("/users/{owner}/threads", response_model=DeletedModel)
    async def delete_threads(owner: str) -> None:
        """Delete at most 200 threads of a user, and stop what runs there. Needs `operate`."""
