"""GraphQL documents that are expensive, deep, long or wrong."""

from tests.fuzz.mutate import MORE, Mutator
from tests.wire.client import AGENTS, CHAT, STATE

FIELDS = (
    *("hello", "a: hello", "availableAgents { agents { id name } }", "...F", "...G", "__typename"),
    *("... on Query { hello }", "... @include(if: $a) { hello }", "__schema { types { name } }"),
    *("__type(name: $a) { fields { type { ofType { name } } } }", 'hello(a: "x")', "nothing"),
    *("loadAgentState(data: $a) { threadId state }", "hello @skip(if: true) @defer @stream"),
    *('loadAgentState(data: {threadId: "t", agentName: "helper"}) { state messages }',),
)
HEADS = (
    *("", "query ", "query A ", "query A($a: String) ", "mutation ", "subscription ", "{"),
    *("query A($a: [String!]! = [1]) ", "query ($a: LoadAgentStateInput!) @b "),
)
TAILS = (
    *("", " fragment F on Query { hello }", " fragment F on Query { ...G } fragment G on Query {"),
    *(" fragment F on Query { ...F }", " fragment F on Agent { id }", " query A { hello }", "#"),
    *(" fragment F on Query { availableAgents { agents { ...G } } } fragment G on Agent { id }",),
)
NOISE = ("#x\n", '"""x\n"""', "\ufeff", ",", " ", "é", "$a ", '"\\u00e9"', "[[", "@a ", "1.5e9 ")


def make_document(mutator: Mutator, document: str) -> str:
    """Return a document of some fields, or a changed one of a client."""
    match mutator.random.randrange(5):
        case 0 | 1:
            body = mutator.pick(FIELDS)
            for _ in range(mutator.random.randint(0, 4)):
                if mutator.chance(0.5):
                    body = f"{body} {mutator.pick(FIELDS)} " * mutator.pick(MORE[:2])
                else:
                    body = f"{mutator.pick(FIELDS)} x {{ {body} }}"
            if mutator.chance(0.1):
                body = f"{body} " * mutator.pick(MORE)
            made = f"{mutator.pick(HEADS)}{{ {body} }}{mutator.pick(TAILS)}"
        case 2:
            many = mutator.pick(MORE) * 10
            spreads = " ".join(f"...F{n}" for n in range(many))
            fragments = "".join(
                f" fragment F{n} on Query {{ hello ...F{n + 1} }}" for n in range(many)
            )
            made = mutator.pick(
                (
                    f"{{ {spreads} }}{fragments}",
                    "query (" + "".join(f"$v{n}: Int " for n in range(many)) + ") { hello }",
                    "{ hello" + " @a" * many + " }",
                    "{ hello(a: " + "[" * many + "1" + "]" * many + ") }",
                    "{ hello(a: {" + "".join(f"f{n}: {n} " for n in range(many)) + "}) }",
                    "{" + "".join(f" availableAgent{n}" for n in range(many)) + "}",
                    " ".join(f"query Q{n} {{ hello }}" for n in range(many)),
                    "{" + "availableAgents { agents {" * many + " id " + "} }" * many + "}",
                )
            )
        case 3:
            noise = mutator.pick(NOISE) * mutator.pick(MORE)
            at = mutator.random.randint(0, len(document))
            made = document[:at] + noise + document[at:]
        case _:
            others = (one.encode() for one in (CHAT, AGENTS, STATE))
            made = mutator.change_bytes(document.encode(), *others).decode(errors="replace")
    return made if len(made) < 1_000_000 else made[:1_000_000]
