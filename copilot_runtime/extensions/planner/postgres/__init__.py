"""Plans in PostgreSQL: the log for servers on several machines."""

from copilot_runtime.extensions.planner.postgres.dbos import DbosPlanLog
from copilot_runtime.extensions.planner.postgres.log import PostgresPlanLog

__all__ = ["DbosPlanLog", "PostgresPlanLog"]
