"""Services with OpenAI's chat completions API: their addresses, and how they differ from it.

`groq("llama-3.1-8b-instant")` has the arguments of `OpenAIAdapter`, and returns one. Capabilities
that a service lacks are in `capabilities.UNSUPPORTED`, under the same name.
"""

from functools import partial

from copilot_runtime.adapters.openai.adapter import OpenAIAdapter
from copilot_runtime.adapters.openai.request import OPENAI, Preset

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
azure = partial(OpenAIAdapter, preset=AZURE)

DEEPSEEK = Preset(
    adapter="deepseek",
    name="DeepSeek",
    base_url="https://api.deepseek.com/v1",
    model="deepseek-chat",
    key_variable="DEEPSEEK_API_KEY",
)
deepseek = partial(OpenAIAdapter, preset=DEEPSEEK)

# https://docs.github.com/en/rest/models/inference
GITHUB = Preset(
    adapter="github",
    name="GitHub Models",
    base_url="https://models.github.ai/inference",
    model="openai/gpt-4.1",
    key_variable="GITHUB_TOKEN",
)
github = partial(OpenAIAdapter, preset=GITHUB)

GROQ = Preset(
    adapter="groq",
    name="Groq",
    base_url="https://api.groq.com/openai/v1",
    model="llama-3.3-70b-versatile",
    key_variable="GROQ_API_KEY",
    max_tokens_name="max_completion_tokens",
)
groq = partial(OpenAIAdapter, preset=GROQ)

LM_STUDIO = Preset(
    adapter="lmstudio",
    name="LM Studio",
    base_url="http://localhost:1234/v1",
    key_variable="LMSTUDIO_API_KEY",
    url_variable="LMSTUDIO_BASE_URL",
    needs_key=False,
)
lmstudio = partial(OpenAIAdapter, preset=LM_STUDIO)

MISTRAL = Preset(
    adapter="mistral",
    name="Mistral",
    base_url="https://api.mistral.ai/v1",
    model="mistral-large-latest",
    key_variable="MISTRAL_API_KEY",
    seed_name="random_seed",
    required="any",
    asks_for_usage=False,  # it always counts, and refuses unknown fields
    strict_order=True,
    call_id_length=9,
)
mistral = partial(OpenAIAdapter, preset=MISTRAL)

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
ollama = partial(OpenAIAdapter, preset=OLLAMA)

OPENROUTER = Preset(
    adapter="openrouter",
    name="OpenRouter",
    base_url="https://openrouter.ai/api/v1",
    model="openrouter/auto",
    key_variable="OPENROUTER_API_KEY",
)
openrouter = partial(OpenAIAdapter, preset=OPENROUTER)

TOGETHER = Preset(
    adapter="together",
    name="Together",
    base_url="https://api.together.xyz/v1",
    model="meta-llama/Llama-3.3-70B-Instruct-Turbo",
    key_variable="TOGETHER_API_KEY",
)
together = partial(OpenAIAdapter, preset=TOGETHER)

UNIFY = Preset(
    adapter="unify",
    name="Unify",
    base_url="https://api.unify.ai/v0",
    key_variable="UNIFY_KEY",
)
unify = partial(OpenAIAdapter, preset=UNIFY)

VLLM = Preset(
    adapter="vllm",
    name="vLLM",
    base_url="http://localhost:8000/v1",
    key_variable="VLLM_API_KEY",
    url_variable="VLLM_BASE_URL",
    needs_key=False,
)
vllm = partial(OpenAIAdapter, preset=VLLM)

PRESETS = {
    preset.adapter: preset
    for preset in (
        *(AZURE, DEEPSEEK, GITHUB, GROQ, LM_STUDIO, MISTRAL, OLLAMA),
        *(OPENAI, OPENROUTER, TOGETHER, UNIFY, VLLM),
    )
}
"""Name in the table of adapters → preset."""
