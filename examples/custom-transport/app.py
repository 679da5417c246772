"""A transport of one's own: a REST API beside GraphQL and AG-UI, for scripts and other services.

copilot-runtime serve examples/custom-transport/app:app
curl http://127.0.0.1:8000/graphql/ask -H 'content-type: application/json' -d '{"question": "Hi!"}'
"""

from contextlib import aclosing

from copilot_runtime import CopilotRuntime, DemoAdapter
from copilot_runtime.api.events import RunFailed, TextMessageContent
from copilot_runtime.api.messages import TextMessage, new_id
from copilot_runtime.base.errors import Misuse
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
from copilot_runtime.transports.transport import Services, Transport


class AskTransport(Transport):
    """`POST /graphql/ask` with `{"question": "…"}` returns `{"answer": "…"}`."""

    paths = ("ask",)

    def __init__(self, services: Services) -> None:
        self._runs = services.program_runs

    async def __call__(self, request: Request) -> None:
        if request.method != "POST":
            raise BadRequest("Only POST is answered here.", 405, allow="POST")
        question = await read_question(request)
        # the run is stopped when the client leaves
        await run_until_disconnect(self._answer(question, request), request.receive, None)

    async def _answer(self, question: str, request: Request) -> None:
        messages = [TextMessage(id=new_id(), role="user", content=question)]
        run = self._runs.build_run(request.caller, messages=messages, operation="ask")
        pieces: list[str] = []
        async with aclosing(self._runs.events(run)) as events:
            async for event in events:
                match event:
                    case TextMessageContent(content=piece):
                        pieces.append(piece)
                    case RunFailed(error=error):
                        await request.respond_json(error.status_code, {"error": error.message})
                        return
                    case _:
                        pass
        await request.respond_json(200, {"answer": "".join(pieces)})


async def read_question(request: Request) -> str:
    """Return the question in the body. Raises `Misuse`, which the client gets as a 400."""
    question = (await request.json_object()).get("question")
    if not isinstance(question, str):
        raise Misuse("The body must have a question, which is a string.")
    return question


app = CopilotRuntime(adapter=DemoAdapter(), transports=["agui", "graphql", AskTransport]).app()
