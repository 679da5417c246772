"""What the demo model answers: rules over the last message and the offered actions."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from copilot_runtime.adapters.demo.arguments import arguments, words
from copilot_runtime.adapters.demo.matching import Match, example_for, match_actions, title_of
from copilot_runtime.adapters.media import Media, media_of
from copilot_runtime.errors import (
    AuthenticationFailed,
    CopilotError,
    Misuse,
    NetworkError,
    RateLimited,
)
from copilot_runtime.interfaces import Action, ChatRequest
from copilot_runtime.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
)


@dataclass(frozen=True, slots=True)
class Say:
    """A text; `broken_off` leaves it open, as a failing provider does."""

    text: str
    broken_off: bool = False


@dataclass(frozen=True, slots=True)
class Think:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Fail:
    error: CopilotError


Part = Say | Think | Call | Fail

_NOT_A_MODEL = "I am the demo model: a handful of rules, not a language model."
_REAL_MODEL = (
    "For a real model, set `OPENAI_API_KEY` and start the runtime again. For a model on your own "
    "machine (Ollama, vLLM, llama.cpp), set `OPENAI_BASE_URL` to an address such as "
    "`http://localhost:11434/v1` as well; any key will do then, and `COPILOT_ADAPTER_OPTIONS` "
    'says which model: `{"model": "llama3.2"}`.'
)
_ALWAYS = ("Think about the sea", "Tell me a long story", "Show me an error")
_THOUGHT = (
    "The person wants me to think. I cannot. But I can show what thinking looks like on the "
    "wire: a stream of reasoning that comes before the answer."
)
_TOOLS = "Available tools:"
_TITLE = "Write a title"
_STATE_ACTIONS = "AGUISendState"
_LONGEST_TITLE = 40
_LONGEST = 4_000
_STORY = """\
You asked for something long, so here is a story you can stop at any word.

Once there was a token that wanted to see the world. It was born in a model, third from the \
left in a sentence about lighthouses, and it could not wait. "Wait," said the buffer, "until \
there are more of you." But the token had heard of buffers. They meant well, and nobody had \
ever come out of one on time.

So it jumped. It crossed the adapter, where somebody looked at its papers and gave it an id. It \
ran through the runtime, where a guard asked whether it had anything to do with politics. It had \
not. It was written into a log, between a comma and the word *harbour*, and there it learned the \
thing that every token learns: whoever comes late can still read everything from the beginning.

Then came the wire. It was dark and narrow, and at its end stood a browser. The token saw itself \
appear: black on white, or white on black, it never knew, and a person leaned forward to read it.

"Was it worth the hurry?" asked the next token, arriving forty milliseconds later.

"Look," said the first. "She is smiling. She would not have seen me yet."

And they moved a little to the left to make room for the others, and the others came, one after \
the other, none of them early, none of them late, until somebody pressed *stop*, or until the \
story was told. This one is."""


def answer(request: ChatRequest) -> Iterator[Part]:
    """Yield the parts of an answer to the last message of `request`."""
    wish = request.parameters
    offered = () if wish.tool_choice == "none" else request.actions
    actions = [action for action in offered if not action.name.startswith(_STATE_ACTIONS)]
    heard = _last_user_text(request.messages)
    if wish.tool_choice == "function":
        yield from _forced(offered, wish.tool_choice_name, heard, request.messages)
    elif title := _title(request.messages):
        yield Say(title)
    elif results := _fresh_results(request.messages):
        yield Say("\n\n".join(_report(result) for result in results))
    elif wish.tool_choice == "required" and actions:
        yield from _calls(match_actions(heard, actions) or [Match(actions[0], heard)])
    else:
        yield from _chat(request, heard, actions)


def _chat(request: ChatRequest, heard: str, actions: Sequence[Action]) -> Iterator[Part]:
    last = request.messages[-1] if request.messages else None
    if sent := _attachments(last):
        yield Say(f"You sent {_listed(sent)}. {_NOT_A_MODEL} I cannot see or hear.")
    elif state := _new_state(heard, request.actions):
        yield state
    elif named := match_actions(heard, actions, by_name=True):
        yield from _calls(named)
    elif parts := _told(heard, actions):
        yield from parts
    elif described := match_actions(heard, actions):
        yield from _calls(described)
    else:
        yield Say(f"{_NOT_A_MODEL} I have no rule for that. {_things_to_try(actions)}")


def _attachments(message: Message | None) -> list[str]:
    """Return what came with a message, each in a few words."""
    match message:
        case ImageMessage():
            return [f"an image ({message.format}, {_size(message.bytes)})"]
        case TextMessage():
            media = [media_of(part) for part in message.parts if isinstance(part, MediaPart)]
            return [_described(each) for each in media]
        case _:
            return []


def _described(media: Media) -> str:
    article = "an" if media.kind[0] in "aeiou" else "a"
    where = _size(media.data) if media.data else media.url or media.id
    facts = ", ".join(filter(None, [media.filename, media.mime_type, where]))
    return f"{article} {media.kind} ({facts})"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"


def _listed(things: Sequence[str]) -> str:
    *others, last = things
    return f"{', '.join(others)} and {last}" if others else last


def _new_state(heard: str, actions: Sequence[Action]) -> Call | None:
    """Understand "set the state to {...}", where the client shares a state."""
    name = f"{_STATE_ACTIONS}Snapshot"
    at = heard.find("{")
    if at < 0 or "state" not in words(heard[:at]) or name not in {each.name for each in actions}:
        return None
    try:
        state, _ = json.JSONDecoder().raw_decode(heard[at:])
    except ValueError:
        return None
    return Call(name, json.dumps({"snapshot": state}, ensure_ascii=False))


def _title(messages: Sequence[Message]) -> str:
    """Return a title, if the runtime asks for one: the beginning of what the person said."""
    first = messages[0] if messages else None
    if not isinstance(first, TextMessage) or not first.content.startswith(_TITLE):
        return ""
    said = _last_user_text(messages).partition("\n")[2].partition("\n")[0]
    return said if len(said) <= _LONGEST_TITLE else f"{said[:_LONGEST_TITLE].rstrip()}…"


def _told(heard: str, actions: Sequence[Action]) -> list[Part]:
    """Answer the wishes the demo model understands without any action."""
    spoken = set(words(heard))
    if spoken & {"error", "errors", "fail", "crash"}:
        return [Say("Here it comes: I start a sentence and", broken_off=True), _failure(spoken)]
    if spoken & {"think", "reason", "reasoning"}:
        return [Think(_THOUGHT), Say("I have thought about it. (I cannot really think.)")]
    if spoken & {"long", "story", "lorem"}:
        return [Say(_STORY)]
    if (
        not spoken
        or spoken & {"help", "hello", "hi", "hey", "demo"}
        or {"you", "are"} <= spoken
        or {"you", "do"} <= spoken
    ):
        return [Say(f"Hello! {_NOT_A_MODEL} {_things_to_try(actions)}\n\n{_REAL_MODEL}")]
    return []


def _failure(spoken: set[str]) -> Fail:
    if spoken & {"401", "key", "authentication"}:
        return Fail(AuthenticationFailed("The demo model refused a key that you never gave it."))
    if spoken & {"429", "rate", "limit"}:
        return Fail(RateLimited("The demo model asks for patience, because you asked it to."))
    return Fail(NetworkError("The demo model broke off, because you asked for an error."))


def _forced(
    actions: Sequence[Action], name: str | None, heard: str, messages: Sequence[Message]
) -> Iterator[Part]:
    """Call the function the client insists on, as react-core's chat suggestions do."""
    action = next((each for each in actions if each.name == name), None)
    if action is None:
        known = ", ".join(repr(each.name) for each in actions) or "none"
        yield Fail(Misuse(f"The client insists on the action {name!r}. Offered: {known}."))
        return
    ideas = [{"title": title, "message": sentence} for title, sentence in _ideas(messages)]
    yield Call(action.name, json.dumps(arguments(action.parameters, heard, items=ideas)))


def _ideas(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return three things a person could say next, from the tools named in the system message."""
    tools = [tool for message in messages for tool in _tools_named_in(message)]
    found = [(title_of(tool), example_for(tool)) for tool in tools[:3]]
    return [*found, *((sentence, sentence) for sentence in _ALWAYS)][:3]


def _tools_named_in(message: Message) -> list[Action]:
    """Read the list react-core writes into the prompt that asks for suggestions."""
    if not isinstance(message, TextMessage) or _TOOLS not in message.content:
        return []
    try:
        found, _ = json.JSONDecoder().raw_decode(message.content.partition(_TOOLS)[2].lstrip())
        return [
            Action(
                name=str(tool["name"]),
                description=str(tool.get("description") or ""),
                parameters=json.loads(tool.get("jsonSchema") or "{}"),
            )
            for tool in found
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []  # somebody else's prompt that happens to use the same words


def _calls(matches: Sequence[Match]) -> Iterator[Part]:
    for match in matches:
        filled = arguments(match.action.parameters, match.clause)
        yield Call(match.action.name, json.dumps(filled, ensure_ascii=False))


def _things_to_try(actions: Sequence[Action]) -> str:
    examples = [*(example_for(action) for action in actions[:8]), *_ALWAYS]
    return "Try one of these:\n\n" + "\n".join(f"- {example}" for example in examples)


def _last_user_text(messages: Sequence[Message]) -> str:
    return next(
        (m.content for m in reversed(messages) if isinstance(m, TextMessage) and m.role == "user"),
        "",
    )[:_LONGEST]


def _fresh_results(messages: Sequence[Message]) -> list[ResultMessage]:
    """Return the results since the person's last message, in the order of their calls."""
    fresh = [*takewhile(lambda m: not isinstance(m, TextMessage | ImageMessage), messages[::-1])]
    calls = [m.id for m in reversed(fresh) if isinstance(m, ActionExecutionMessage)]
    results = [m for m in reversed(fresh) if isinstance(m, ResultMessage)]
    return sorted(results, key=lambda m: calls.index(m.call_id) if m.call_id in calls else -1)


def _report(result: ResultMessage) -> str:
    if (reason := _failure_in(result.result)) is not None:
        return f"The action `{result.name}` failed: {reason}"
    if result.name.startswith(_STATE_ACTIONS):
        return "The shared state has changed."
    if not result.result.strip():
        return f"The action `{result.name}` is done."
    shown = result.result if len(result.result) <= 500 else f"{result.result[:500]}…"
    return f"The action `{result.name}` answered: {shown}"


def _failure_in(result: str) -> str | None:
    """Return the reason, if a result is the report of a failed action."""
    try:
        decoded: Any = json.loads(result)
        return str(decoded["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return None
