"""The question of libpolicy: may an actor read these resources?"""

from copilot_runtime.extensions.knowledge.policies import ALLOW_ALL
from tests.conformance.copilot_ld.cases import Case


def answer(case: Case) -> bool:
    """Ask the policy that allows everything, which is the only one that Copilot-LD has."""
    return ALLOW_ALL.evaluate(case.input)
