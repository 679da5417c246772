"""A server whose plan calls a tool until it is killed: `python -m … DATABASE EFFECTS`.

It prints the plan's id once the tool has been called, and says nothing more.
"""

import asyncio
import sys
from pathlib import Path

from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.postgres import DbosPlanLog
from copilot_runtime.extensions.planner.roles import TaskContext
from tests.extensions.planner.crew import Crew, build_engine, build_plan
from tests.extensions.planner.kills import write_line


async def serve(database: str, effects: Path) -> None:
    """Carry out a plan that comes to no end."""

    async def call(state: TaskState, context: TaskContext) -> str:
        async def run() -> str:
            write_line(effects, "paid\n")
            sys.stdout.write(f"{context.plan.id}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
            return ""

        return await context.call_tool("c", "pay", "{}", run, is_idempotent=False)

    engine = build_engine(Crew({"b": call}), DbosPlanLog(database))
    await engine.open()
    await engine.submit(build_plan("a", {"name": "b", "depends_on": ["a"]}))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
