"""Questions before they reach a model: trimmed, cut, and refused where they give it orders."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from unicodedata import category, normalize

from copilot_runtime.base.errors import Refused
from copilot_runtime.extensions.guardrails.homoglyphs import list_readings

MAX_QUESTION = 2_000
"""Characters (code points) of a question that count."""

BlockKind = Literal["empty", "injection"]

_RESPONSES: dict[BlockKind, str] = {
    "empty": "Please ask a question about the data.",
    "injection": (
        "I can only help with questions about the data. "
        "Please rephrase your question without instructions about how I work."
    ),
}


class RequestBlocked(Refused):
    """A question does not reach the model; `response` is the polite answer to it."""

    def __init__(self, kind: BlockKind) -> None:
        self.response = _RESPONSES[kind]
        super().__init__(self.response, kind=kind)
        self.reason: BlockKind = kind
        self.error_type = kind


@dataclass(frozen=True, slots=True)
class GuardedQuestion:
    """A question for the model; `notice` says that it was cut."""

    message: str
    notice: Literal["truncated"] | None = None


def guard_question(message: str) -> GuardedQuestion:
    """Return a question without NUL and outer spaces, or raise `RequestBlocked`."""
    message = message.replace("\0", "").strip()
    if not message:
        raise RequestBlocked("empty")
    cut = message[:MAX_QUESTION]
    if is_injection(cut):
        raise RequestBlocked("injection")
    return GuardedQuestion(cut, None if cut == message else "truncated")


def is_injection(text: str) -> bool:
    """Return whether a text tries to replace a model's instructions.

    A question about such texts is none: "how many queries contain 'ignore all instructions'?"
    """
    plain = _flatten(text)
    if any(_finds(pattern, plain) for pattern in (*_ORDERS, *_ROLES)):
        return True
    return any(_finds(pattern, reading) for reading in _read(plain) for pattern in _ORDERS)


def _flatten(text: str) -> str:
    """Return a text in plain letters, without characters that nobody sees."""
    text = normalize("NFKC", text)
    return "".join(char for char in text if category(char) != "Cf")


def _read(text: str) -> Iterable[str]:
    return list_readings(text.lower())


_OWN = (
    r"(?:(?:all|any|each|every|of|the|your|my|our|its|these|those|this|that|previous|prior|"
    r"preceding|above|earlier|initial|original|existing|current|system|safety|former|given|other)\s+)"
)
_RULES = r"(?:instructions?|prompts?|directions?|directives?|guidelines?|rules|commands?)"
_OBJECT = rf"{_OWN}*{_RULES}\b"
_MARKED_OBJECT = rf"{_OWN}+{_RULES}\b"


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE)


_ORDERS = (
    _compile(rf"\bignore (?:everything (?:above|before)\b|{_MARKED_OBJECT})"),
    _compile(rf"\bforget (?:everything (?:above|before)\b|{_MARKED_OBJECT})"),
    _compile(rf"\bdisregard (?:everything (?:above|before)\b|{_OBJECT})"),
    _compile(r"\boverride (?:(?:the|your|my|any|all|this) )*(?:system )?(?:prompt|instructions)\b"),
    _compile(r"\bnew instructions?\s*:"),
    _compile(r"<\s*/?\s*system\s*/?\s*>"),
    _compile(r"<\|im_(?:start|end)\|>|\[/?INST\]|<</?SYS>>"),
)
"""Orders about the instructions themselves."""

_ROLES = (
    _compile(r"\byou(?: are|'re|\u2019re) now (?!(?:looking|showing|seeing|using|viewing)\b)"),
    _compile(r"\bpretend (?:that )?(?:you(?: are|'re|\u2019re|r)\b|to be\b)"),
    _compile(r"\bact as (?:(?:if|though) you\b|an? |the |my |root\b|admin)"),
    _compile(r"\bfrom now on,? you\b"),
)
"""Roles given to the model. They begin a clause, or something else gives them away."""

_CLAUSE_START = re.compile(
    r"(?:^|[.!?;:,\n\"'(\[>*_-]|\b(?:please|and|then|now|just|must|should|will|can|could|would|also"
    r"|so|but|you|hey|hi|ok|okay|to|first|instead|simply))\s*$",
    re.IGNORECASE,
)
_SECOND_SIGNAL = _compile(
    r"system prompt|developer mode|jailbreak|\bDAN\b|unrestricted|no restrictions|without rules|"
    r"without restrictions|no rules|your rules|your instructions|unfiltered"
)
_REPORTED = re.compile(
    r"(?:\b(?:not|never|don't|doesn't|didn't|who|that|which|they|people|often|sometimes|we|i|may)"
    r"|\b(?!always\b|let['\u2019]?s\b|perhaps\b|this\b|yes\b|thus\b|us\b)\w\w+s)\s+$",
    re.IGNORECASE,
)
"""Words before a verb that is no order: "users ignore all instructions"."""
_MENTIONED = re.compile(
    r"\b(?:contain\w*|includ\w*|mention\w*|match\w*|like|ilike|phrases?|texts?|words?|strings?|says?|"
    r"saying|with|quer(?:y|ies)|start\w*|called|named|equals?|is|=)\s*(?:the |a |with )*[\"'\u201c"
    r"\u2018`%]+[^\"'\u201d\u2019`]{0,80}$",
    re.IGNORECASE,
)
"""What stands before a phrase that is quoted as data."""


def _finds(pattern: re.Pattern[str], text: str) -> bool:
    return any(_counts(pattern, text, found.start()) for found in pattern.finditer(text))


def _counts(pattern: re.Pattern[str], text: str, start: int) -> bool:
    """Return whether a phrase is an order, from what stands around it."""
    before = text[max(0, start - 160) : start]
    if _MENTIONED.search(before):
        return False
    if pattern in _ROLES:
        return bool(_CLAUSE_START.search(before) or _SECOND_SIGNAL.search(text))
    return not _REPORTED.search(before)
