"""Plans in PostgreSQL: the log for servers on several machines."""

from copilot_runtime.agents.planner.postgres.dbos import DbosPlanLog
from copilot_runtime.agents.planner.postgres.log import PostgresPlanLog

__all__ = ["DbosPlanLog", "PostgresPlanLog"]
