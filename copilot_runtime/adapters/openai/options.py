"""What is special about a service that speaks OpenAI's API, and about one adapter's requests."""

from dataclasses import dataclass
from typing import Literal

from copilot_runtime.adapters.profiles import find_profile

MaxTokensName = Literal["max_completion_tokens", "max_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One service. `adapter` is its name in the table of adapters, `name` is for people."""

    adapter: str
    name: str
    base_url: str
    """Empty: it must be given."""
    model: str = ""
    """The model that is asked when none is named; empty: one must be named."""
    key_variable: str
    url_variable: str = ""
    needs_key: bool = True
    """At its own address; elsewhere nobody knows."""
    key_header: str = "authorization"
    """Where the key goes; in `authorization` it is a bearer's."""
    max_tokens_name: MaxTokensName = "max_tokens"
    seed_name: str = "seed"
    required: str = "required"
    """Its word for `tool_choice="required"`."""
    takes_no_choice: bool = False
    """It ignores `tool_choice`: for `none` it must not hear of the tools."""
    asks_for_usage: bool = True
    """It counts tokens when `stream_options` ask for it, and refuses no such question."""
    developer_role: bool | None = False
    """It knows the role; None: ask the model's profile, and at its own address yes."""
    strict_order: bool = False
    """Instructions come first, after a result the model speaks, and never has the last word."""
    call_id_length: int | None = None
    """Ids of calls are letters and digits, exactly that many."""
    wants_thoughts: bool = False
    """It wants to see the model's thoughts again, beside the calls that came of them."""
    routes_by_deployment: bool = False
    """With an `api_version`, the model is a part of the address."""

    def is_at(self, url: str) -> bool:
        """Return whether `url` is the service's own address."""
        return bool(self.base_url) and url.rstrip("/") == self.base_url


OPENAI = Preset(
    adapter="openai",
    name="OpenAI",
    base_url="https://api.openai.com/v1",
    model="gpt-4o",
    key_variable="OPENAI_API_KEY",
    url_variable="OPENAI_BASE_URL",
    max_tokens_name="max_completion_tokens",
    developer_role=None,
)

ReasoningSummary = Literal["auto", "concise", "detailed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What all requests of one adapter have in common."""

    preset: Preset = OPENAI
    parallel_tool_calls: bool | None = None
    """Sent where a request has actions and does not say itself; None: not sent."""
    developer_role: bool | None = None
    """Whether instructions come from `developer`, and not from `system`; None: as suits
    the model."""
    include_usage: bool = False
    max_tokens_name: MaxTokensName = "max_completion_tokens"
    reasoning_summary: ReasoningSummary | None = None
    """How models that think sum up their thoughts; None: not at all."""
    signer: str = ""
    """Whose signed thoughts are sent back; empty: nobody's."""

    def uses_developer_role(self, model: str) -> bool:
        """Return whether instructions come from `developer`."""
        if self.developer_role is None:
            return find_profile(model).developer_role
        return self.developer_role
