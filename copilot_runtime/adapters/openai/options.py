"""Presets for services with OpenAI's API, and the options of one adapter."""

from dataclasses import dataclass
from typing import Literal

from copilot_runtime.adapters.context_window import find_profile

MaxTokensName = Literal["max_completion_tokens", "max_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One service. `adapter` is its name in the table of adapters, `name` is for people."""

    adapter: str
    name: str
    base_url: str
    """Empty: it must be given."""
    model: str = ""
    """The model where a request names none; empty: one must be named."""
    key_variable: str
    url_variable: str = ""
    needs_key: bool = True
    """Whether requests to its own address need a key."""
    key_header: str = "authorization"
    """Where the key goes; in `authorization` it is a bearer's."""
    max_tokens_name: MaxTokensName = "max_tokens"
    seed_name: str = "seed"
    required: str = "required"
    """Its word for the choice `required`."""
    takes_no_choice: bool = False
    """It ignores `tool_choice`: for `none`, no tools are sent."""
    asks_for_usage: bool = True
    """Whether `stream_options` requests token counts; some services refuse it."""
    developer_role: bool | None = False
    """It supports the role; None: at the default base URL, elsewhere by the model's profile."""
    strict_order: bool = False
    """It requires instructions first, a model message after each result, and the user's last."""
    call_id_length: int | None = None
    """The exact length of call ids, which are letters and digits."""
    wants_thoughts: bool = False
    """The model's reasoning is sent back to it, with the calls that followed."""
    routes_by_deployment: bool = False
    """With an `api_version`, the model is a part of the address."""

    def is_at(self, url: str) -> bool:
        """Return whether `url` is the service's default base URL."""
        return bool(self.base_url) and url.rstrip("/") == self.base_url

    def uses_developer_role(self, model: str) -> bool:
        """Return whether the role of instructions is `developer` instead of `system`."""
        if self.developer_role is None:
            return find_profile(model).developer_role
        return self.developer_role


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
    """The options of all requests of one adapter."""

    preset: Preset = OPENAI
    """The service, with the overrides of the adapter's options."""
    parallel_tool_calls: bool | None = None
    """The default for requests with actions; None: the field is omitted."""
    reasoning_summary: ReasoningSummary | None = None
    """The length of reasoning summaries; None: no summaries."""
    signer: str = ""
    """The provider whose signed reasoning is sent back; empty: none."""
