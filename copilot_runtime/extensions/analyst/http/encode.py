"""The events of a run as the analyst's own streams have them: thoughts, one answer, the end."""

from collections.abc import Sequence
from typing import NamedTuple

from copilot_runtime.api.events import (
    Activity,
    Custom,
    Event,
    Interrupt,
    RunFailed,
    RunFinished,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.base.errors import ErrorReport
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.extensions.analyst.view import (
    ANSWER,
    CHART,
    DOWNLOAD,
    QUESTION,
    TABLE,
    THOUGHT,
)


class Frame(NamedTuple):
    """One event: `data` is None for an end."""

    name: str
    data: JsonObject | None


class StreamEncoder:
    """Encodes the events of one run, in order."""

    def __init__(self) -> None:
        self.thoughts: list[JsonObject] = []
        self._texts: dict[str, list[str]] = {}
        self._shown: dict[str, list[JsonObject]] = {
            kind: [] for kind in (CHART, TABLE, DOWNLOAD, ANSWER, QUESTION)
        }
        self._approval: JsonObject | None = None

    def feed(self, event: Event) -> Sequence[Frame]:
        """Return what an event is to the client; nothing for most."""
        match event:
            case Custom(name=name, value=value) if name == THOUGHT:
                self.thoughts.append(as_object(value))
                return [Frame(THOUGHT, self.thoughts[-1])]
            case TextMessageStart(message_id=id):
                self._texts[id] = []
            case TextMessageContent(message_id=id, content=content):
                self._texts.setdefault(id, []).append(content)
            case Activity(activity_type=kind, content=content) if kind in self._shown:
                self._shown[kind].append(as_object(content))
            case Interrupt(interrupt_id=id, value=value, message=message):
                fields = as_object(value)
                self._approval = {
                    "id": id,
                    "question": message,
                    "tool": fields.get("tool"),
                    "arguments": fields.get("arguments"),
                    "rows": fields.get("rows"),
                }
            case RunFinished():
                return [Frame("response", self.build_response()), Frame("done", None)]
            case RunFailed(error=report):
                return [Frame("error", describe_error(report)), Frame("done", None)]
            case _:
                pass
        return []

    def build_response(self) -> JsonObject:
        """Return the answer of a run that has finished."""
        found = self._shown
        return {
            "success": True,
            "response": self._find_text(),
            "thoughts_count": len(self.thoughts),
            "chart": found[CHART][-1] if found[CHART] else None,
            "download": found[DOWNLOAD][-1] if found[DOWNLOAD] else None,
            "charts": found[CHART],
            "tables": found[TABLE],
            "downloads": found[DOWNLOAD],
            "answer": found[ANSWER][-1] if found[ANSWER] else None,
            "question": found[QUESTION][-1] if found[QUESTION] else None,
            "approval": self._approval,
        }

    def _find_text(self) -> str:
        """Return the last text, or the question of an approval."""
        texts = ["".join(pieces) for pieces in self._texts.values()]
        last = next((text for text in reversed(texts) if text.strip()), "")
        return last or str((self._approval or {}).get("question") or "")


def describe_error(report: ErrorReport) -> JsonObject:
    """Return an error as its client may know it."""
    return {"error": report.message, "code": report.code}
