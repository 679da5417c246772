"""Names plans and their tasks as resources, below the message that asked for them."""

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
    """Return the resource that a task is; that of `ROOT` is the plan."""
    identifier = Identifier(TASK, plan.id, str(identify_message(plan)))
    for place in task_id.split(".") if task_id != ROOT else ():
        identifier = Identifier(TASK, place, str(identifier))
    return identifier


def identify_message(plan: Plan) -> Identifier:
    """Return the message that asked for a plan."""
    created = plan.created
    conversation = conversation_identifier(created.user, created.thread_id)
    return Identifier(MESSAGE, shorten_name(created.run_id or plan.id), str(conversation))
