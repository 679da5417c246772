"""What adapters can do, what each of them lacks and why: one table for code, tests and README.

An adapter looks into it before it sends a request (`CapabilityFilter.apply`), the contract suite
skips by it, and the README prints it. A model may lack more than its provider's API: that goes to
`CapabilityFilter.omit`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from copilot_runtime.errors import ConfigurationFailed, Misuse
from copilot_runtime.events import Custom, Event
from copilot_runtime.interfaces import Parameters

UnsupportedPolicy = Literal["warn", "refuse"]
"""What becomes of a parameter that a model does not take: left out with a warning, or refused."""

WARNING = "warning"
"""The name of the `Custom` event for each parameter that was left out."""

CAPABILITIES: Mapping[str, str] = {
    "reasoning": "thoughts before the answer",
    "signatures": "signed thoughts go back to the model that had them",
    "calls": "calls of actions",
    "parallel_calls": "several calls in one answer",
    "interleaved_calls": "pieces of several calls in turns",
    "arguments_in_pieces": "arguments arrive while they are written",
    "history": "earlier calls and their results go back as such",
    "trimming": "what is too long for the model is shortened",
    "tool_choice_auto": "the model may call",
    "tool_choice_none": "the model must not call",
    "tool_choice_required": "the model must call",
    "tool_choice_function": "the model must call one that is named",
    "parallel_tool_calls": "one call at a time, on request",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "a limit of the answer's length",
    "stop": "words that stop the answer",
    "seed": "a seed",
    "frequency_penalty": "a penalty for frequent words",
    "presence_penalty": "a penalty for words used before",
    "reasoning_effort": "how hard to think",
    "response_schema": "an answer of a JSON schema",
    "images": "images with their content",
    "image_urls": "images by their address",
    "documents": "documents with their content",
    "usage": "counts of tokens",
    "cached_tokens": "counts of cached tokens",
    "reasoning_tokens": "counts of tokens of reasoning",
    "stop_reasons": "why the model stopped",
    "refusals": "the model refuses in words of its own",
    "content_filter": "a filter that stops answers",
    "pings": "signs of life between the pieces",
    "end_marker": "a last event after which nothing follows",
    "errors_in_stream": "errors in the middle of an answer",
    "http": "retries, headers and connections of our own",
    "retry_after": "the server says how long to wait",
    "half_characters": "halves of characters, escaped",
    "answer_ids": "ids of calls that the model gives",
}
"""Capability → in words. Those that are parameters have the names of `Parameters`."""

_NO_SIGNATURES = "Chat completions show no signed thoughts."
_NO_REFUSALS = "Nothing in its answers tells a refusal from another text."

UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    "anthropic": {
        "seed": "The Messages API has no seed.",
        "frequency_penalty": "The Messages API has no penalties.",
        "presence_penalty": "The Messages API has no penalties.",
        "refusals": "Claude refuses in its text, or with the stop reason 'refusal'.",
        "content_filter": "What stops an answer is the stop reason 'refusal'.",
    },
    "azure": {"signatures": _NO_SIGNATURES},
    "bedrock": {
        "parallel_tool_calls": "Converse has no setting for it.",
        "seed": "Converse has no seed.",
        "frequency_penalty": "Converse has no penalties.",
        "presence_penalty": "Converse has no penalties.",
        "image_urls": "Bedrock takes images with their content or from Amazon S3.",
        "reasoning_tokens": "Converse counts them among the answer's.",
        "refusals": "Nothing in Converse tells a refusal from another text.",
    },
    "deepseek": {
        "signatures": "DeepSeek wants its thoughts back as they are, unsigned.",
        "parallel_tool_calls": "DeepSeek has no setting for it.",
        "seed": "DeepSeek has no seed.",
        "response_schema": "DeepSeek takes JSON mode only, without a schema.",
        "images": "DeepSeek reads text only.",
        "image_urls": "DeepSeek reads text only.",
        "documents": "DeepSeek reads text only.",
        "refusals": _NO_REFUSALS,
    },
    "google": {
        "interleaved_calls": "Gemini sends each call whole.",
        "arguments_in_pieces": "Gemini sends each call whole.",
        "parallel_tool_calls": "Gemini has no setting for it.",
        "refusals": "Nothing in Gemini's answers tells a refusal from another text.",
        "end_marker": "The stream just ends.",
    },
    "groq": {
        "signatures": _NO_SIGNATURES,
        "frequency_penalty": "None of Groq's models supports it.",
        "presence_penalty": "None of Groq's models supports it.",
        "documents": "Groq takes images and text only.",
        "refusals": _NO_REFUSALS,
    },
    "langchain": {
        "response_schema": "Chat models of LangChain have no common way to stream it.",
        "refusals": "LangChain does not tell a refusal from another text.",
        "end_marker": "The chat model speaks HTTP, not we.",
        "http": "The chat model speaks HTTP, not we.",
    },
    "lmstudio": {
        "signatures": _NO_SIGNATURES,
        "tool_choice_function": "LM Studio takes auto, none and required only.",
        "parallel_tool_calls": "LM Studio tells of no setting for it.",
        "image_urls": "LM Studio takes images with their content.",
        "documents": "LM Studio takes images and text only.",
        "refusals": _NO_REFUSALS,
        "content_filter": "Nothing filters what a model of your own says.",
    },
    "mistral": {
        "signatures": _NO_SIGNATURES,
        "reasoning_effort": "Mistral's models have their own measure of it.",
        "documents": "Mistral takes documents by their address only.",
        "refusals": _NO_REFUSALS,
    },
    "ollama": {
        "signatures": _NO_SIGNATURES,
        "tool_choice_required": "Ollama's OpenAI API ignores it.",
        "tool_choice_function": "Ollama's OpenAI API ignores it.",
        "parallel_tool_calls": "Ollama has no setting for it.",
        "image_urls": "Ollama takes images with their content.",
        "documents": "Ollama takes images and text only.",
        "refusals": _NO_REFUSALS,
        "content_filter": "Nothing filters what a model of your own says.",
    },
    "openai": {
        "signatures": "Chat completions show no signed thoughts; api='responses' does.",
    },
    "openai_assistants": {
        "history": "The server has it; in a new thread, calls are told as text.",
        "trimming": "The server shortens its threads itself.",
        "reasoning": "Runs show no thoughts.",
        "signatures": "Runs show no thoughts.",
        "stop": "Runs have no stop words.",
        "seed": "Runs have no seed.",
        "frequency_penalty": "Runs have no penalties.",
        "presence_penalty": "Runs have no penalties.",
        "reasoning_effort": "A run that begins a thread does not take it.",
        "images": "Threads take images by their address only.",
        "documents": "Threads take documents from a vector store only.",
        "cached_tokens": "Runs do not count them.",
        "reasoning_tokens": "Runs do not count them.",
        "content_filter": "Runs do not tell of one.",
    },
    "openai_responses": {
        "stop": "The Responses API has no stop words.",
        "seed": "The Responses API has no seed.",
        "frequency_penalty": "The Responses API has no penalties.",
        "presence_penalty": "The Responses API has no penalties.",
        "end_marker": "Its last event also says why the model stopped.",
    },
    "openrouter": {
        "signatures": "OpenRouter has fields of its own for them, which nobody reads here.",
    },
    "together": {
        "signatures": _NO_SIGNATURES,
        "parallel_tool_calls": "Together has no setting for it.",
        "documents": "Together takes no files in a conversation.",
        "cached_tokens": "Together counts what went in and what came out.",
        "reasoning_tokens": "Together counts what went in and what came out.",
        "refusals": _NO_REFUSALS,
        "content_filter": "None of its reasons to stop is a filter.",
    },
    "unify": {
        "signatures": _NO_SIGNATURES,
        "documents": "Unify tells of images and text only.",
        "refusals": _NO_REFUSALS,
    },
    "vllm": {
        "signatures": _NO_SIGNATURES,
        "documents": "vLLM takes images, sounds, films and text.",
        "reasoning_tokens": "vLLM counts them among the answer's.",
        "refusals": _NO_REFUSALS,
        "content_filter": "Nothing filters what a model of your own says.",
    },
}
"""Adapter → capability → why it is not there."""

UNDOCUMENTED: Mapping[str, frozenset[str]] = {
    "lmstudio": frozenset(
        {"parallel_tool_calls", "reasoning_effort", "cached_tokens", "reasoning_tokens"}
    ),
    "unify": frozenset(
        {"documents", "cached_tokens", "reasoning_tokens", "refusals", "content_filter"}
    ),
}
"""Adapter → capabilities that the documentation of its service does not mention."""

_PARAMETERS = (
    *("temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty"),
    *("presence_penalty", "reasoning_effort", "response_schema", "parallel_tool_calls"),
)


class CapabilityFilter:
    """Leaves out of one request what its model does not take. One is made for each request.

    `adapter` is the name in the table; `provider` and `model` are written into the messages.
    `warnings` are the events to yield before the first event of the response. Raises `Misuse` for
    a policy that is none.
    """

    def __init__(
        self, adapter: str, provider: str, model: str, unsupported: UnsupportedPolicy = "warn"
    ) -> None:
        if unsupported not in ("warn", "refuse"):
            raise Misuse(f"unsupported is 'warn' or 'refuse', not {unsupported!r}.")
        self.adapter = adapter
        self.provider = provider
        self.model = model
        self.warnings: list[Event] = []
        self._refuses = unsupported == "refuse"

    def apply(self, parameters: Parameters, reasons: Mapping[str, str] | None = None) -> Parameters:
        """Return the parameters without those that the adapter's line in the table names.

        `reasons` takes the place of that line: parameter → why this model does not take it.
        Raises `ConfigurationFailed` for such a parameter if the policy is to refuse it.
        """
        reasons = UNSUPPORTED.get(self.adapter, {}) if reasons is None else reasons
        changes: dict[str, Any] = {}
        for name in _PARAMETERS:
            value = getattr(parameters, name)
            if name not in reasons or value in (None, (), []):
                continue
            changes[name] = None
            if name != "parallel_tool_calls" or value is False:  # else it is what all do
                self.omit(name, reasons[name])
        choice = f"tool_choice_{parameters.tool_choice}"
        if parameters.tool_choice and choice in reasons:
            self.omit(choice, reasons[choice])
            changes |= {"tool_choice": None, "tool_choice_name": None}
        return replace(parameters, **changes) if changes else parameters

    def reason(self, capability: str) -> str | None:
        """Return why the adapter lacks a capability, or None if it does not."""
        return UNSUPPORTED.get(self.adapter, {}).get(capability)

    def omit(self, code: str, why: str) -> None:
        """Add a warning that `code` is left out. Raises `ConfigurationFailed` to refuse it."""
        message = f"{self.provider} was asked for {code!r} with {self.model!r}. {why}"
        if self._refuses:
            raise ConfigurationFailed(
                message, hint="With unsupported='warn' the adapter leaves it out instead."
            )
        value = {
            "code": code,
            "message": message,
            "provider": self.provider,
            "model": self.model,
        }
        self.warnings.append(Custom(name=WARNING, value=value))
