"""How a service differs from OpenAI, whose API it has, and the options of one adapter."""

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
    """Whether `stream_options` ask for the counts of tokens; some services refuse that."""
    developer_role: bool | None = False
    """It takes the role; None: at its own address, elsewhere if the model's profile says so."""
    strict_order: bool = False
    """Instructions come first, a message of the model after each result, and the user's last."""
    call_id_length: int | None = None
    """Ids of calls are letters and digits, exactly that many."""
    wants_thoughts: bool = False
    """The model's thoughts are sent back to it, beside the calls that followed them."""
    routes_by_deployment: bool = False
    """With an `api_version`, the model is a part of the address."""

    def is_at(self, url: str) -> bool:
        """Return whether `url` is the service's own address."""
        return bool(self.base_url) and url.rstrip("/") == self.base_url

    def uses_developer_role(self, model: str) -> bool:
        """Return whether instructions come from `developer`, and not from `system`."""
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
    """What all requests of one adapter have in common."""

    preset: Preset = OPENAI
    """The service, with what the adapter's options change of it."""
    parallel_tool_calls: bool | None = None
    """Sent where a request has actions and does not say itself; None: not sent."""
    reasoning_summary: ReasoningSummary | None = None
    """How long the summaries of thoughts are; None: there are none."""
    signer: str = ""
    """Whose signed thoughts are sent back; empty: nobody's."""
