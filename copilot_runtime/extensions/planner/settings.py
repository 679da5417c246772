"""The settings section of the planner."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from copilot_runtime.config.checks import check_store_url
from copilot_runtime.config.section import Count, SecondsOrNone, Section, check_match


class PlannerSettings(Section):
    """An agent that breaks a request into tasks and has the other agents do them."""

    name: Annotated[str, check_match(r"^[A-Za-z0-9_-]*$", "of letters, digits, _ and - alone")] = (
        Field(
            default="",
            description="Name of the agent that plans. Empty: there is none.",
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
        description="Where plans are kept: sqlite:PATH, postgresql://... for servers on several "
        "machines, dbos:postgresql://... where DBOS shows them as well, or memory, where they end "
        "with the server.",
        repr=False,  # it may hold a password
    )
    retention: SecondsOrNone = Field(
        default=30 * 86_400,
        description="Seconds after which a plan that is over is deleted; 0 for never. In memory, "
        "there are at most 1000.",
    )
    needs_approval: bool = Field(
        default=False, description="Whether a person is asked before a plan is carried out."
    )
    evaluation: str = Field(
        default="",
        description="Criteria for the outcome of any plan. Empty: the whole is not evaluated.",
    )
    fallback: str = Field(
        default="", description="Agent that does tasks for which none is alike enough."
    )
    floor: float = Field(
        default=0.05,
        ge=-1,
        le=1,
        description="How alike a task and an agent must be, from -1 to 1. It depends on the "
        "embedder of knowledge.",
    )
    summary: Literal["model", "join"] = Field(
        default="model",
        description="How outcomes of tasks become one: by the model, or one after the other.",
    )
    depth: Count = Field(default=5, description="Most levels of tasks in a plan.")
    width: Count = Field(default=20, description="Most tasks side by side below one task.")
    tasks: Count = Field(default=200, description="Most tasks of a plan, corrections included.")
    rounds: int = Field(
        default=2, ge=0, description="Most rounds of corrective tasks below one task."
    )
    concurrency: Count = Field(default=8, description="Most tasks of a plan at the same time.")
    tokens: int | None = Field(
        default=None, gt=0, description="Most tokens that a plan may use. Empty: any number."
    )
    dollars: float | None = Field(
        default=None, gt=0, description="Most US dollars that a plan may cost. Empty: any sum."
    )
    seconds: float | None = Field(
        default=3600.0,
        gt=0,
        description="Seconds for which a plan may work, without those in which it waits for "
        "people. Empty: any time.",
    )
