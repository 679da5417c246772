"""A call's context and a request, as tests of actions have them."""

from tests.actions.conftest import context, run

__all__ = ["context", "run"]
