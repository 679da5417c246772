"""Agents: each is one way to answer a run."""

AGENTS = {
    "a2a": "copilot_runtime.agents.a2a:A2aAgent",
    "agui": "copilot_runtime.agents.agui:AguiAgent",
    "direct": "copilot_runtime.agents.direct:DirectAgent",
    "function": "copilot_runtime.agents.function:FunctionAgent",
    "langgraph": "copilot_runtime.agents.langgraph:LangGraphAgent",
    "langgraph_inprocess": "copilot_runtime.agents.langgraph.inprocess:LangGraphInProcessAgent",
    "openai_agents": "copilot_runtime.agents.openai_agents:OpenAIAgentsAgent",
    "pydantic_ai": "copilot_runtime.agents.pydantic_ai:PydanticAIAgent",
}
"""Name → import string of every agent kind in this package."""
