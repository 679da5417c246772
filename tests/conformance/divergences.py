"""Read DIVERGENCES.md: which scenarios differ from Node on purpose, and why."""

import re
from pathlib import Path

FILE = Path(__file__).parent / "DIVERGENCES.md"
ANSWERS = "What the client ends up with"
REQUESTS = "What the model is asked"
AGUI_ANSWERS = "What clients of 1.74 end up with"
COPILOT_LD = "What knowledge does otherwise than Copilot-LD"
COPILOT_LD_TELEMETRY = "What telemetry does otherwise than Copilot-LD"
COPILOT_LD_AGENTS = "What assistants do otherwise than Copilot-LD"
COPILOT_LD_ACCESS = "What tokens of services do otherwise than Copilot-LD"
DATA_ANALYST = "What the data analyst does otherwise than its cases"
GENERATIVE_UI = "What pages draw of interfaces that models make"
OLD_AGUI_ANSWERS = "What clients of 1.50 and 1.57 end up with"

_ROW = re.compile(r"^\| (`[^|]+`) \| (.+) \|$", re.MULTILINE)
_NAME = re.compile(r"`([\w-]+)`")


def reasons(title: str) -> dict[str, str]:
    """Return scenario → reason of the section with that title."""
    section = FILE.read_text().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return {
        name: reason for names, reason in _ROW.findall(section) for name in _NAME.findall(names)
    }
