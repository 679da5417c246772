"""Services that speak OpenAI's chat completions API, each with its address and its habits.

Only data: what they cannot do at all stands in `capabilities.UNSUPPORTED`, under the same names.
"""

from dataclasses import dataclass
from typing import Literal

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

AZURE = Preset(
    adapter="azure",
    name="Azure OpenAI",
    base_url="",
    key_variable="AZURE_OPENAI_API_KEY",
    url_variable="AZURE_OPENAI_ENDPOINT",
    key_header="api-key",
    max_tokens_name="max_completion_tokens",
    developer_role=None,
    routes_by_deployment=True,
)

DEEPSEEK = Preset(
    adapter="deepseek",
    name="DeepSeek",
    base_url="https://api.deepseek.com/v1",
    model="deepseek-chat",
    key_variable="DEEPSEEK_API_KEY",
    wants_thoughts=True,
)

GROQ = Preset(
    adapter="groq",
    name="Groq",
    base_url="https://api.groq.com/openai/v1",
    model="llama-3.3-70b-versatile",
    key_variable="GROQ_API_KEY",
    max_tokens_name="max_completion_tokens",
)

LM_STUDIO = Preset(
    adapter="lmstudio",
    name="LM Studio",
    base_url="http://localhost:1234/v1",
    key_variable="LMSTUDIO_API_KEY",
    url_variable="LMSTUDIO_BASE_URL",
    needs_key=False,
)

MISTRAL = Preset(
    adapter="mistral",
    name="Mistral",
    base_url="https://api.mistral.ai/v1",
    model="mistral-large-latest",
    key_variable="MISTRAL_API_KEY",
    seed_name="random_seed",
    required="any",
    asks_for_usage=False,  # it counts unasked, and refuses fields it does not know
    strict_order=True,
    call_id_length=9,
)

OLLAMA = Preset(
    adapter="ollama",
    name="Ollama",
    base_url="http://localhost:11434/v1",
    key_variable="OLLAMA_API_KEY",
    url_variable="OLLAMA_BASE_URL",
    takes_no_choice=True,
    model="llama3.2",
    needs_key=False,
)

OPENROUTER = Preset(
    adapter="openrouter",
    name="OpenRouter",
    base_url="https://openrouter.ai/api/v1",
    model="openrouter/auto",
    key_variable="OPENROUTER_API_KEY",
)

TOGETHER = Preset(
    adapter="together",
    name="Together",
    base_url="https://api.together.xyz/v1",
    model="meta-llama/Llama-3.3-70B-Instruct-Turbo",
    key_variable="TOGETHER_API_KEY",
)

UNIFY = Preset(
    adapter="unify",
    name="Unify",
    base_url="https://api.unify.ai/v0",
    key_variable="UNIFY_KEY",
)

VLLM = Preset(
    adapter="vllm",
    name="vLLM",
    base_url="http://localhost:8000/v1",
    key_variable="VLLM_API_KEY",
    url_variable="VLLM_BASE_URL",
    needs_key=False,
)

PRESETS = {
    preset.adapter: preset
    for preset in (
        *(AZURE, DEEPSEEK, GROQ, LM_STUDIO, MISTRAL, OLLAMA),
        *(OPENAI, OPENROUTER, TOGETHER, UNIFY, VLLM),
    )
}
