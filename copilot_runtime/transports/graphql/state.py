"""What an agent remembers of a thread, as the v1 client asks for it."""

from dataclasses import dataclass

from copilot_runtime.interfaces import private_thread_id
from copilot_runtime.jsontext import dumps
from copilot_runtime.transports.graphql.context import Context


@dataclass(frozen=True, slots=True)
class LoadedState:
    """`state` and `messages` are JSON text, as the v1 schema has them."""

    exists: bool = False
    state: str = "{}"
    messages: str = "[]"


async def load_state(context: Context, agent_name: str, thread_id: str) -> LoadedState:
    """Ask the agent for a thread's state. Raises `AgentNotFound` for a name nobody has.

    An agent that keeps threads has `async load_state(thread_id, caller)`, which returns state and
    messages as JSON values, or None; of any other, every thread is new. Where people sign in, the
    id is that of `private_thread_id`.
    """
    agent = await context.runs.agent(agent_name, context.caller)
    own_id = private_thread_id(context.caller.user, thread_id)
    found = await agent.load_state(own_id, context.caller)
    if found is None:
        return LoadedState()
    state, messages = found
    return LoadedState(True, dumps(state).decode(), dumps(messages).decode())
