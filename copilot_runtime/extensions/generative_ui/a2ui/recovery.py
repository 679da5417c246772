"""Executes the calls by which our own models draw: surfaces that are wrong are written again."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.api.action import ActionContext
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.generative_ui.a2ui.results import EXHAUSTED
from copilot_runtime.extensions.generative_ui.a2ui.validation import Problem, validate_components
from copilot_runtime.extensions.generative_ui.options import A2ui

RENDERED: Mapping[str, str] = {"status": "rendered"}
"""The result of a surface that is on the page."""

logger = logging.getLogger(__name__)


class SurfaceRecovery:
    """Compares the surfaces of one run with the rules; a model gets what is wrong, and tries again.

    After `recovery.max_attempts` surfaces in a row that cannot be drawn, it is to answer in words.
    """

    def __init__(self, tool: str, catalog: Mapping[str, Any] | None, options: A2ui) -> None:
        self._tool = tool
        self._catalog = catalog
        self._max_bytes = options.max_bytes
        self._max_attempts = max(1, options.recovery.max_attempts)
        self._attempts: list[JsonObject] = []

    async def check_surface(
        self, arguments: Mapping[str, Any], context: ActionContext
    ) -> Mapping[str, Any]:
        """Return the result of a call, for the model."""
        problems = self._find_problems(arguments)
        if not problems:
            self._attempts.clear()
            return RENDERED
        errors = [dict(problem._asdict()) for problem in problems]
        attempt = min(len(self._attempts) + 1, self._max_attempts)
        if len(self._attempts) < self._max_attempts:
            self._attempts.append({"attempt": attempt, "ok": False, "errors": errors})
        logger.info(
            "A surface of %r cannot be drawn, attempt %d: %s", context.agent, attempt, problems[0]
        )
        if attempt < self._max_attempts:
            return {
                "status": "rejected",
                "attempt": attempt,
                "maxAttempts": self._max_attempts,
                "errors": errors,
                "hint": f"Nothing was drawn. Correct every error, and call {self._tool} again "
                "with the whole surface.",
            }
        return {
            "code": EXHAUSTED,
            "error": f"The surface could not be drawn in {attempt} attempts.",
            "attempts": [*self._attempts],
            "hint": f"Do not call {self._tool} again. Answer the person in words.",
        }

    def _find_problems(self, arguments: Mapping[str, Any]) -> Sequence[Problem]:
        """Return why a surface is not drawn."""
        if len(dumps(arguments)) > self._max_bytes:
            message = f"The surface has more than {self._max_bytes} bytes."
            return [Problem("too_large", "components", message)]
        problems: list[Problem] = []
        if not isinstance(surface_id := arguments.get("surfaceId"), str) or not surface_id:
            message = "The surface needs a surfaceId, which is a text."
            problems.append(Problem("missing_surface_id", "surfaceId", message))
        return [*problems, *validate_components(arguments.get("components"), self._catalog)]
