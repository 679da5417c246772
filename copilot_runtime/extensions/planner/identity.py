"""Resource identifiers of plans and tasks, below the message that requested the plan."""

from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies.ownership import (
    conversation_identifier,
    shorten_name,
)
from copilot_runtime.extensions.planner.events import ROOT
from copilot_runtime.extensions.planner.plan import Plan

TASK = "plan.Task"
MESSAGE = "common.Message"


def identify_task(plan: Plan, task_id: str) -> Identifier:
    """Return the identifier of a task; `ROOT` stands for the plan itself."""
    identifier = Identifier(TASK, plan.id, str(identify_message(plan)))
    for place in task_id.split(".") if task_id != ROOT else ():
        identifier = Identifier(TASK, place, str(identifier))
    return identifier


def identify_message(plan: Plan) -> Identifier:
    """Return the identifier of the message that requested a plan."""
    created = plan.created
    conversation = conversation_identifier(created.user, created.thread_id)
    return Identifier(MESSAGE, shorten_name(created.run_id or plan.id), str(conversation))
