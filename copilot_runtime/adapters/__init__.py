"""The providers of models, each by its name."""

ADAPTERS = {
    "demo": "copilot_runtime.adapters.demo:DemoAdapter",
    "empty": "copilot_runtime.adapters.empty:EmptyAdapter",
    "openai": "copilot_runtime.adapters.openai:OpenAIAdapter",
    "scripted": "copilot_runtime.adapters.scripted:ScriptedAdapter",
}
