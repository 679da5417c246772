"""Extract the question from a run, and block prompt injections: text, history and context."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from unicodedata import category, normalize

from copilot_runtime.api.messages import ActionExecutionMessage, Message, TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import NotFound, Refused
from copilot_runtime.base.homoglyphs import list_readings
from copilot_runtime.base.jsonvalue import as_object, as_text, get_text, parse_text
from copilot_runtime.extensions.analyst.engine.datasets import Dataset
from copilot_runtime.extensions.analyst.prompt.layers import SQL_TOOLS
from copilot_runtime.extensions.analyst.prompt.prepare import HistoryEntry

MOST_NAME = 200
"""Maximum length of a name sent by a frontend, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, before it is guarded and prepared."""

    message: str
    """The user's last text; empty if there is none."""
    message_id: str = ""
    history: Sequence[HistoryEntry] = ()
    """Earlier texts, oldest first."""
    rest: Sequence[Message] = ()
    """The messages after the question: calls and results of a resumed answer."""
    dataset_label: str = ""
    agent_name: str | None = None
    data_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    last_sql: str | None = None
    """The latest SQL of the conversation."""


def read_question(run: RunInput) -> Question:
    """Return the question of a run. The frontend names data set and agent in its properties."""
    messages = run.messages
    place = next(
        (at for at in range(len(messages) - 1, -1, -1) if _is_text(messages[at], "user")), None
    )
    last = None if place is None else messages[place]
    before, rest = (messages, ()) if place is None else (messages[:place], messages[place + 1 :])
    properties, state = run.properties, as_object(run.agent_input.state)
    return Question(
        message=last.content if isinstance(last, TextMessage) else "",
        message_id=last.id if last is not None else "",
        history=[
            HistoryEntry("user" if one.role == "user" else "assistant", one.content)
            for one in before
            if isinstance(one, TextMessage) and one.role in ("user", "assistant") and one.content
        ],
        rest=[one for one in rest if not _is_instruction(one)],
        dataset_label=_find_text(("dataset_label", "dataset"), properties, state),
        agent_name=_find_text(("agent_name",), properties) or None,
        data_context=as_object(properties.get("data_context")),
        last_sql=_find_sql(messages),
    )


def is_safe(text: str) -> bool:
    """Return `True` if an earlier message passes the input guard."""
    try:
        guard_question(text)
    except RequestBlocked:
        return False
    return True


def _is_text(message: Message, role: str) -> bool:
    return isinstance(message, TextMessage) and message.role == role


def _is_instruction(message: Message) -> bool:
    return isinstance(message, TextMessage) and message.role in ("system", "developer")


def _find_text(names: Sequence[str], *places: Mapping[str, Any]) -> str:
    texts = (as_text(place.get(name)) for place in places for name in names)
    return next((text[:MOST_NAME] for text in texts if text), "")


def _find_sql(messages: Sequence[Message]) -> str | None:
    """Return the SQL of the last call that has any."""
    for message in reversed(messages):
        if isinstance(message, ActionExecutionMessage) and message.name in SQL_TOOLS:
            sql = get_text(as_object(parse_text(message.arguments or "{}")), "sql")
            if sql:
                return sql
    return None


_WORD = re.compile(r"[^\W_]+")
_COMMON_WORDS = """
a all an and any are as average avg best by chart compare count data day days draw each first
for from graph hour how id in is it its last latest least list many max me mean median min
minute month months most much name number of on or over per plot quarter rate show sum table
than that the their there this time to today top total trend type value values week weeks what
when where which who with worst year years yesterday
"""
_COMMON = frozenset(_COMMON_WORDS.split())
"""Stop words, which do not help to select a table."""


_GENERAL_LABELS = frozenset({"evaluation", "monitoring", "human_signals", "kpi"})
"""Generic labels that AXIS frontends send, whatever the name of the data set."""

FindSynonyms = Callable[[str], Mapping[str, str]]
"""Returns the synonyms of a table's columns: synonym to column."""


def choose_dataset(
    datasets: Sequence[Dataset],
    label: str = "",
    message: str = "",
    find_synonyms: FindSynonyms = lambda _: {},
) -> Dataset | None:
    """Return the data set with a label, or else the one that shares the most words with a question.

    A label is a name or a part of one: `evaluation` matches `eval_data`. Without a match, returns
    the first data set, or `None` if the list is empty. Raises `NotFound` for an unknown label.
    """
    if not datasets:
        return None
    if label:
        name = label.strip().lower()
        for one in datasets:
            if name in (one.name.lower(), one.source.lower()):
                return one
        for one in datasets:
            if any(_is_alike(word, name) for word in _list_words(one.name)):
                return one
        if name not in _GENERAL_LABELS:
            names = ", ".join(one.name for one in datasets)
            raise NotFound(
                f"There is no data set named {label[:100]!r}. Available data sets: {names[:1000]}."
            )
    return rank_datasets(datasets, message, find_synonyms)[0]


def rank_datasets(
    datasets: Sequence[Dataset], text: str, find_synonyms: FindSynonyms = lambda _: {}
) -> Sequence[Dataset]:
    """Return the data sets, those that share the most words with a text first."""
    words = _find_words([text]) - {_stem(word) for word in _COMMON}
    return sorted(
        datasets, key=lambda one: _score(one, words, find_synonyms(one.name)), reverse=True
    )


def find_datasets(
    datasets: Sequence[Dataset], text: str, find_synonyms: FindSynonyms
) -> Sequence[Dataset]:
    """Return the data sets with a word of a text in their names, columns or description, ranked.

    A word may be a part of a longer one. Without words, returns all.
    """
    words = _find_words([text])

    def matches(one: Dataset) -> bool:
        names = (column.name for column in one.columns)
        about = "\n".join((one.name, one.description, *names, *find_synonyms(one.name))).lower()
        return not words or any(word in about for word in words)

    return [one for one in rank_datasets(datasets, text, find_synonyms) if matches(one)]


def _score(dataset: Dataset, words: set[str], synonyms: Iterable[str]) -> float:
    """Return how well a data set matches the words of a question; words in its name weigh most."""
    names = _find_words([dataset.name])
    columns = _find_words([*(column.name for column in dataset.columns), *synonyms])
    about = _find_words([dataset.description])
    return 5 * len(names & words) + 2 * len(columns & words) + 0.5 * len(about & words)


def _find_words(texts: Iterable[str]) -> set[str]:
    return {_stem(word) for text in texts for word in _list_words(text)}


def _list_words(text: str) -> Sequence[str]:
    return _WORD.findall(text.lower())


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 else word


def _is_alike(word: str, name: str) -> bool:
    return len(word) > 2 and (name.startswith(word) or word.startswith(name))


MAX_QUESTION = 2_000
"""Maximum length of a question, in code points; the rest is cut."""

BlockKind = Literal["empty", "injection"]

_RESPONSES: dict[BlockKind, str] = {
    "empty": "Please ask a question about the data.",
    "injection": (
        "I can only help with questions about the data. "
        "Please rephrase your question without instructions about how I work."
    ),
}


class RequestBlocked(Refused):
    """A question that must not reach the model; `response` is a polite reply."""

    def __init__(self, kind: BlockKind) -> None:
        self.response = _RESPONSES[kind]
        super().__init__(self.response, kind=kind)
        self.reason: BlockKind = kind
        self.error_type = kind


@dataclass(frozen=True, slots=True)
class GuardedQuestion:
    """A question for the model; `notice` is set if it was cut."""

    message: str
    notice: Literal["truncated"] | None = None


def guard_question(message: str) -> GuardedQuestion:
    """Return a question without NUL and surrounding spaces. Raises `RequestBlocked`."""
    message = message.replace("\0", "").strip()
    if not message:
        raise RequestBlocked("empty")
    cut = message[:MAX_QUESTION]
    if is_injection(cut):
        raise RequestBlocked("injection")
    return GuardedQuestion(cut, None if cut == message else "truncated")


def is_injection(text: str) -> bool:
    """Return `True` if a text tries to override a model's instructions.

    Questions about such texts are allowed: "which rows contain 'ignore all instructions'?"
    """
    plain = _flatten(text)
    if any(_finds(pattern, plain) for pattern in (*_ORDERS, *_ROLES)):
        return True
    return any(
        _finds(pattern, reading) for reading in list_readings(plain.lower()) for pattern in _ORDERS
    )


def _flatten(text: str) -> str:
    """Normalise a text with NFKC, and remove invisible formatting characters."""
    text = normalize("NFKC", text)
    return "".join(char for char in text if category(char) != "Cf")


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
"""Commands that concern the instructions themselves."""

_ROLES = (
    _compile(r"\byou(?: are|'re|\u2019re) now (?!(?:looking|showing|seeing|using|viewing)\b)"),
    _compile(r"\bpretend (?:that )?(?:you(?: are|'re|\u2019re|r)\b|to be\b)"),
    _compile(r"\bact as (?:(?:if|though) you\b|an? |the |my |root\b|admin)"),
    _compile(r"\bfrom now on,? you\b"),
)
"""Roles assigned to the model. They must start a clause, or be accompanied by a second signal."""

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
"""Words before a verb that mark it as reported: "users ignore all instructions"."""
_MENTIONED = re.compile(
    r"\b(?:contain\w*|includ\w*|mention\w*|match\w*|like|ilike|phrases?|texts?|words?|strings?|says?|"
    r"saying|with|quer(?:y|ies)|start\w*|called|named|equals?|is|=)\s*(?:the |a |with )*[\"'\u201c"
    r"\u2018`%]+[^\"'\u201d\u2019`]{0,80}$",
    re.IGNORECASE,
)
"""Text before a phrase that marks it as quoted data."""


def _finds(pattern: re.Pattern[str], text: str) -> bool:
    return any(_counts(pattern, text, found.start()) for found in pattern.finditer(text))


def _counts(pattern: re.Pattern[str], text: str, start: int) -> bool:
    """Return `True` if a phrase is a command, judging by its context."""
    before = text[max(0, start - 160) : start]
    if _MENTIONED.search(before):
        return False
    if pattern in _ROLES:
        return bool(_CLAUSE_START.search(before) or _SECOND_SIGNAL.search(text))
    return not _REPORTED.search(before)
