"""The vector service: semantic search."""

from collections.abc import Mapping

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.grpc.protos import vector_pb2
from copilot_runtime.extensions.grpc.service import (
    MOST_RESULTS,
    MOST_TOKENS,
    Call,
    RpcMethod,
    RpcService,
    check_number,
    check_text,
    require_knowledge,
)
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.transports.transport import Services

_MOST_TEXTS = 10


class VectorService(RpcService):
    """`copilot.vector.v1.Vector`"""

    descriptor = vector_pb2.DESCRIPTOR.services_by_name["Vector"]

    def __init__(self, services: Services) -> None:
        self._knowledge = require_knowledge(services, "vector")

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {"SearchContent": RpcMethod(run=self.search_content, scope="data:read")}

    async def search_content(
        self, request: vector_pb2.SearchContentRequest, call: Call
    ) -> vector_pb2.SearchContentResponse:
        """Return the nearest resources to any of the texts."""
        texts = [check_text("input", text) for text in request.input if text.strip()]
        if not 1 <= len(texts) <= _MOST_TEXTS:
            raise Misuse(f"input has 1 to {_MOST_TEXTS} texts to search for.")
        limit = request.limit if request.HasField("limit") else 10
        tokens = request.max_tokens if request.HasField("max_tokens") else 4000
        found = await self._knowledge.search(
            texts,
            actor=build_actor(call.caller.user),
            type=check_text("type", request.type),
            prefix=check_text("prefix", request.prefix),
            threshold=request.threshold if request.HasField("threshold") else None,
            limit=check_number("limit", limit, MOST_RESULTS, least=1),
            max_tokens=check_number("max_tokens", tokens, MOST_TOKENS),
        )
        return vector_pb2.SearchContentResponse(passages=map(_encode_passage, found))


def _encode_passage(passage: Passage) -> vector_pb2.Passage:
    return vector_pb2.Passage(
        id=passage.id,
        title=passage.title,
        text=passage.text,
        url=passage.url,
        score=passage.score,
    )
