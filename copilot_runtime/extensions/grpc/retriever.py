"""A retriever that searches knowledge on another machine over gRPC."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.api.identity import split_owner
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.extensions.knowledge.access import Actor
from copilot_runtime.extensions.knowledge.retrieval import KnowledgeRetriever

if TYPE_CHECKING:
    from copilot_runtime.extensions.grpc.client import ServiceChannel

_MOST_RESULTS = 100
_MOST_TOKENS = 20_000
_TIMEOUT = 10.0


class RemoteRetriever(KnowledgeRetriever):
    """Finds passages as `Knowledge.retriever()` does, in the service `vector` of another runtime.

    It searches on behalf of the user of each run, for which the role of the signing service needs
    the scope `operate`. Anonymous runs search as the service itself.

    >>> channel = connect("grpc://vectors:50051", service="chat", secrets=[secret])
    >>> agent = DirectAgent(adapter, retriever=RemoteRetriever(channel))
    """

    def __init__(
        self,
        channel: "ServiceChannel",
        *,
        limit: int = 5,
        max_tokens: int = 2000,
        threshold: float | None = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        searched: Any = RemoteSearch(channel, timeout)
        super().__init__(searched, limit=limit, max_tokens=max_tokens, threshold=threshold)


class RemoteSearch:
    """The remote equivalent of `Knowledge.search`."""

    def __init__(self, channel: "ServiceChannel", timeout: float) -> None:
        self._channel = channel
        self._timeout = timeout

    async def search(
        self, text: str, *, actor: Actor, limit: int, threshold: float | None = None
    ) -> Sequence[Passage]:
        """Return the passages that the actor may read. Raises `CopilotError`."""
        from grpc.aio import AioRpcError

        from copilot_runtime.extensions.grpc.errors import convert_rpc_error
        from copilot_runtime.extensions.grpc.protos.vector_pb2 import SearchContentRequest
        from copilot_runtime.extensions.grpc.protos.vector_pb2_grpc import VectorStub

        tenant, user = split_owner(actor.name or None)
        channel = self._channel.act_for(user or "", tenant) if actor.name else self._channel
        search: Any = VectorStub(cast("Any", channel)).SearchContent
        request = SearchContentRequest(
            input=[text],
            limit=min(limit, _MOST_RESULTS),
            max_tokens=_MOST_TOKENS,
            threshold=threshold,
        )
        try:
            found = await search(request, timeout=self._timeout)
        except AioRpcError as error:
            raise convert_rpc_error(error, "The knowledge elsewhere", self._timeout) from error
        return [
            Passage(
                id=one.id,
                title=one.title,
                text=one.text,
                url=one.url,
                score=one.score if one.HasField("score") else None,
            )
            for one in found.passages
        ]
