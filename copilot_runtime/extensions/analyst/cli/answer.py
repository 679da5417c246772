"""What comes of a question, collected from the events of its run."""

from dataclasses import dataclass, field

from copilot_runtime.api.events import Activity, Event, TextMessageContent, TextMessageEnd
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects, get_text


@dataclass(slots=True)
class Answer:
    """The answer to one question, as pages get it."""

    text: str = ""
    thoughts: list[JsonObject] = field(default_factory=list[JsonObject])
    charts: list[JsonObject] = field(default_factory=list[JsonObject])
    tables: list[JsonObject] = field(default_factory=list[JsonObject])
    downloads: list[JsonObject] = field(default_factory=list[JsonObject])
    trust: str = ""
    lineage: list[JsonObject] = field(default_factory=list[JsonObject])
    question: JsonObject = field(default_factory=dict[str, object])
    """A question back; empty without one."""
    error: str = ""

    def add(self, event: Event) -> None:
        """Take in what an event says."""
        match event:
            case TextMessageContent(content=content):
                self.text += content
            case TextMessageEnd() if self.text and not self.text.endswith("\n\n"):
                self.text += "\n\n"
            case Activity(activity_type=kind, content=content) if kind.startswith("analyst-"):
                self._add_activity(kind.removeprefix("analyst-"), as_object(content))
            case _:
                pass

    def _add_activity(self, kind: str, content: JsonObject) -> None:
        match kind:
            case "thoughts":
                self.thoughts = [*as_objects(content.get("thoughts"))]
            case "chart":
                self.charts.append(content)
            case "table":
                self.tables.append(content)
            case "download":
                self.downloads.append(content)
            case "answer":
                self.trust = get_text(content, "trust")
                self.lineage = [*as_objects(content.get("lineage"))]
            case "question":
                self.question = content
            case _:
                pass

    def describe(self) -> JsonObject:
        """Return it as JSON, for programs."""
        return {
            "answer": self.text.strip(),
            "trust": self.trust or None,
            "lineage": self.lineage,
            "tables": self.tables,
            "charts": self.charts,
            "downloads": self.downloads,
            "question": self.question or None,
            "thoughts": self.thoughts,
            "error": self.error or None,
        }
