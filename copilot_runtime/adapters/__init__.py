"""The table of adapters: provider name → import string. The classes load when they are used."""

_PRESETS = "copilot_runtime.adapters.openai.presets"

ADAPTERS = {
    "anthropic": "copilot_runtime.adapters.anthropic:AnthropicAdapter",
    "azure": f"{_PRESETS}:azure",
    "bedrock": "copilot_runtime.adapters.bedrock:BedrockAdapter",
    "deepseek": f"{_PRESETS}:deepseek",
    "demo": "copilot_runtime.adapters.demo:DemoAdapter",
    "empty": "copilot_runtime.adapters.empty:EmptyAdapter",
    "github": f"{_PRESETS}:github",
    "google": "copilot_runtime.adapters.google:GoogleAdapter",
    "groq": f"{_PRESETS}:groq",
    "langchain": "copilot_runtime.adapters.langchain:LangChainAdapter",
    "lmstudio": f"{_PRESETS}:lmstudio",
    "mistral": f"{_PRESETS}:mistral",
    "ollama": f"{_PRESETS}:ollama",
    "openai": "copilot_runtime.adapters.openai:OpenAIAdapter",
    "openai_assistants": "copilot_runtime.adapters.openai.assistants:OpenAIAssistantsAdapter",
    "openrouter": f"{_PRESETS}:openrouter",
    "scripted": "copilot_runtime.adapters.scripted:ScriptedAdapter",
    "together": f"{_PRESETS}:together",
    "unify": f"{_PRESETS}:unify",
    "vllm": f"{_PRESETS}:vllm",
}
