"""The graph service: triple patterns and the ontology."""

from collections.abc import Mapping

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.extensions.grpc.protos import graph_pb2
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


class GraphService(RpcService):
    """`copilot.graph.v1.Graph`"""

    descriptor = graph_pb2.DESCRIPTOR.services_by_name["Graph"]

    def __init__(self, services: Services) -> None:
        self._knowledge = require_knowledge(services, "graph")

    def list_methods(self) -> Mapping[str, RpcMethod]:
        return {
            "QueryByPattern": RpcMethod(run=self.query_by_pattern, scope="data:read"),
            "GetOntology": RpcMethod(run=self.get_ontology, scope="data:read"),
        }

    async def query_by_pattern(
        self, request: graph_pb2.QueryByPatternRequest, call: Call
    ) -> graph_pb2.QueryByPatternResponse:
        """Return the matching triples, and the resources that contain them."""
        actor = build_actor(call.caller.user)
        count = request.limit if request.HasField("limit") else 50
        limit = check_number("limit", count, MOST_RESULTS, least=1)
        pattern = (
            check_text("subject", request.subject) or "?",
            check_text("predicate", request.predicate) or "?",
            check_text("object", request.object) or "?",
        )
        triples = await self._knowledge.triples(pattern, actor=actor, limit=limit + 1)
        found = await self._knowledge.find(
            pattern, actor=actor, limit=limit, max_tokens=MOST_TOKENS
        )
        return graph_pb2.QueryByPatternResponse(
            triples=[
                graph_pb2.Triple(subject=subject, predicate=predicate, object=object)
                for subject, predicate, object in triples[:limit]
            ],
            passages=map(_encode_passage, found),
            cut=len(triples) > limit,
        )

    async def get_ontology(
        self,
        request: graph_pb2.GetOntologyRequest,  # noqa: ARG002
        call: Call,
    ) -> graph_pb2.GetOntologyResponse:
        """Return the vocabulary of the resources that the caller may read."""
        actor = build_actor(call.caller.user)
        ontology = await self._knowledge.ontology(actor=actor)
        classes = [
            graph_pb2.OntologyClass(
                iri=one.iri,
                name=one.name,
                instances=one.instances,
                properties=dict.fromkeys(it.path for it in one.properties if not it.is_inverse),
            )
            for one in ontology.classes
        ]
        turtle = await self._knowledge.ontology_turtle(actor=actor)
        return graph_pb2.GetOntologyResponse(turtle=turtle, classes=classes)


def _encode_passage(passage: Passage) -> graph_pb2.Passage:
    return graph_pb2.Passage(id=passage.id, title=passage.title, text=passage.text, url=passage.url)
