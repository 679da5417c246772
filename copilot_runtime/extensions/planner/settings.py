"""The settings section `planner`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from copilot_runtime.config.checks import check_store_url
from copilot_runtime.config.section import Count, SecondsOrNone, Section, check_match


class PlannerSettings(Section):
    """An agent that breaks a request into tasks and delegates them to the other agents."""

    name: Annotated[str, check_match(r"^[A-Za-z0-9_-]*$", "of letters, digits, _ and - alone")] = (
        Field(
            default="",
            description="Name of the planner agent. Empty: none.",
        )
    )
    store: Annotated[
        str,
        check_match(
            r"^(memory|sqlite:.+|(dbos:)?postgres(ql)?://.+)$",
            "sqlite:PATH, postgresql://..., dbos:postgresql://... or memory",
        ),
        AfterValidator(check_store_url),
    ] = Field(
        default="sqlite:.copilot/plans.db",
        description="Store of plans: sqlite:PATH, postgresql://..., dbos:postgresql://... "
        "(shown in DBOS as well), or memory.",
        repr=False,  # it may hold a password
    )
    retention: SecondsOrNone = Field(
        default=30 * 86_400,
        description="Seconds finished plans are kept; 0 for no expiry. In memory, at most 1000.",
    )
    needs_approval: bool = Field(
        default=False, description="Whether plans need the user's approval to start."
    )
    evaluation: str = Field(
        default="",
        description="Criteria for the outcome of any plan. Empty: the whole is not evaluated.",
    )
    fallback: str = Field(
        default="assistant",
        description="Agent for tasks that match no agent well enough; `assistant` is the model. "
        "Empty: they fail.",
    )
    floor: float = Field(
        default=0.05,
        ge=-1,
        le=1,
        description="Least similarity of task and agent, from -1 to 1; the scale is the "
        "embedder's.",
    )
    summary: Literal["model", "join"] = Field(
        default="model",
        description="Outcome of a plan: summarised by the model, or concatenated (join).",
    )
    depth: Count = Field(default=5, description="Most levels of tasks.")
    width: Count = Field(default=20, description="Most subtasks of a task.")
    tasks: Count = Field(default=200, description="Most tasks of a plan, with corrections.")
    rounds: int = Field(default=2, ge=0, description="Most rounds of corrections per task.")
    concurrency: Count = Field(default=8, description="Most concurrent tasks of a plan.")
    tokens: int | None = Field(
        default=None, gt=0, description="Token budget of a plan. Empty: no limit."
    )
    dollars: float | None = Field(
        default=None, gt=0, description="Budget of a plan in US dollars. Empty: no limit."
    )
    seconds: float | None = Field(
        default=3600.0,
        gt=0,
        description="Seconds for a plan, without the waiting for users. Empty: no limit.",
    )
