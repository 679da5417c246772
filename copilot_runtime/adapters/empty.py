"""The adapter without a model, for applications that only use agents."""

from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import Misuse

_MESSAGE = (
    "Invalid adapter configuration: EmptyAdapter is only meant to be used with agent lock mode. \n"
    "For non-agent components like useCopilotChatSuggestions, CopilotTextarea, or CopilotTask, \n"
    "please use an LLM adapter instead."
)


class EmptyAdapter(Adapter):
    """Refuses plain chats, in the words of the Node runtime."""

    def check(self, run: RunInput) -> None:
        """Raise `Misuse` for a run without an agent, before its answer begins."""
        if run.agent is None:
            raise _misuse()

    async def stream(self, request: ChatRequest) -> Events:
        """Raise `Misuse`: there is no model."""
        del request
        raise _misuse()
        yield  # makes this a generator


def _misuse() -> Misuse:
    return Misuse(_MESSAGE, hint="Give CopilotRuntime an adapter such as OpenAIAdapter.")
