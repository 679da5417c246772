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
            description="Name of the planner agent. Empty: no planner.",
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
        description="Store of plans: sqlite:PATH, postgresql://... for servers on several "
        "machines, dbos:postgresql://... to show them in DBOS as well, or memory (until the "
        "server stops).",
        repr=False,  # it may hold a password
    )
    retention: SecondsOrNone = Field(
        default=30 * 86_400,
        description="Retention of finished plans in seconds; 0 for no expiry. In memory, at most "
        "1000 are kept.",
    )
    needs_approval: bool = Field(
        default=False, description="Whether plans need the user's approval before they start."
    )
    evaluation: str = Field(
        default="",
        description="Criteria for the outcome of any plan. Empty: the whole is not evaluated.",
    )
    fallback: str = Field(
        default="", description="Agent for tasks that match no agent well enough."
    )
    floor: float = Field(
        default=0.05,
        ge=-1,
        le=1,
        description="Minimum similarity of a task and an agent, from -1 to 1. The scale depends on "
        "the embedder of knowledge.",
    )
    summary: Literal["model", "join"] = Field(
        default="model",
        description="Aggregation of task outcomes: summary by the model, or concatenation (join).",
    )
    depth: Count = Field(default=5, description="Maximum number of task levels in a plan.")
    width: Count = Field(default=20, description="Maximum number of subtasks of a task.")
    tasks: Count = Field(default=200, description="Maximum tasks of a plan, with corrections.")
    rounds: int = Field(default=2, ge=0, description="Maximum rounds of corrective tasks per task.")
    concurrency: Count = Field(default=8, description="Maximum concurrent tasks of a plan.")
    tokens: int | None = Field(
        default=None, gt=0, description="Token budget of a plan. Empty: no limit."
    )
    dollars: float | None = Field(
        default=None, gt=0, description="Cost budget of a plan in US dollars. Empty: no limit."
    )
    seconds: float | None = Field(
        default=3600.0,
        gt=0,
        description="Time limit of a plan in seconds, not counting the time in which it waits for "
        "users. Empty: no limit.",
    )
