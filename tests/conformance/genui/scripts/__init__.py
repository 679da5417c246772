"""Further scripts of the agent: what models, agents and servers may do beside the usual."""

from collections.abc import Mapping

from tests.conformance.genui.scripts.apps import APPS
from tests.conformance.genui.scripts.events import Event
from tests.conformance.genui.scripts.pages import PAGES
from tests.conformance.genui.scripts.surfaces import SURFACES

MORE: Mapping[str, list[Event]] = {**SURFACES, **PAGES, **APPS}
"""The events of each script between the first and the last, which it may bring along."""
