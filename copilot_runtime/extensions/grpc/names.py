"""What a call says beside its message, and what of that a service token is for."""

from collections.abc import Mapping
from string import punctuation
from urllib.parse import quote

USER = "copilot-user"
"""Metadata: the user for whom a service of the operator asks, percent-encoded beyond ASCII."""
TENANT = "copilot-tenant"
"""Metadata: the tenant of that user."""
CODE = "copilot-code"
"""Metadata behind an answer: the code of an error of ours, such as `LIMIT_EXCEEDED`."""


def name_operation(path: str, user: str = "", tenant: str = "") -> str:
    """Return what is signed: `/package.Service/Method`, and for whom it is called, if for others.

    Else whoever sees a token could use it, with the same message, for another user.
    """
    if not (user or tenant):
        return path
    return f"{path}?user={quote(user, safe='')}&tenant={quote(tenant, safe='')}"


def build_user_metadata(user: str = "", tenant: str = "") -> Mapping[str, str]:
    """Return the metadata of a call for somebody: it has ASCII alone, and ids of users have not."""
    names = {USER: quote(user, safe=punctuation.replace("%", "")), TENANT: tenant}
    return {name: value for name, value in names.items() if value}
