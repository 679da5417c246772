"""The metadata of a call, and the part of a call that a service token signs."""

from collections.abc import Mapping
from string import punctuation
from urllib.parse import quote

USER = "copilot-user"
"""Metadata key of the user on whose behalf a service calls, percent-encoded beyond ASCII."""
TENANT = "copilot-tenant"
"""Metadata key of that user's tenant."""
CODE = "copilot-code"
"""Trailing metadata key of our error code, such as `LIMIT_EXCEEDED`."""


def name_operation(path: str, user: str = "", tenant: str = "") -> str:
    """Return the signed operation: `/package.Service/Method`, with the user and tenant, if any.

    Without these, an intercepted token could be used with the same message for another user.
    """
    if not (user or tenant):
        return path
    return f"{path}?user={quote(user, safe='')}&tenant={quote(tenant, safe='')}"


def build_user_metadata(user: str = "", tenant: str = "") -> Mapping[str, str]:
    """Return the metadata of a call on behalf of a user, encoded as ASCII."""
    names = {USER: quote(user, safe=punctuation.replace("%", "")), TENANT: tenant}
    return {name: value for name, value in names.items() if value}
