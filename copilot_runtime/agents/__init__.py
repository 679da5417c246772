"""Agents: each is one way to answer a run."""

AGENTS = {
    "a2a": "copilot_runtime.extensions.a2a.client:A2aAgent",
    "agui": "copilot_runtime.agents.agui:AguiAgent",
    "direct": "copilot_runtime.agents.direct:DirectAgent",
    "function": "copilot_runtime.agents.function:FunctionAgent",
    "langgraph": "copilot_runtime.extensions.frameworks.langgraph:LangGraphAgent",
    "langgraph_inprocess": (
        "copilot_runtime.extensions.frameworks.langgraph.inprocess:LangGraphInProcessAgent"
    ),
    "openai_agents": "copilot_runtime.extensions.frameworks.openai_agents:OpenAIAgentsAgent",
    "pydantic_ai": "copilot_runtime.extensions.frameworks.pydantic_ai:PydanticAIAgent",
}
"""Name → import string of every agent kind in this package."""
