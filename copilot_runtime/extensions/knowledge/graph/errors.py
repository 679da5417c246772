"""What can be wrong with a query. Whoever wrote it, such as a model, gets the hint as well."""

from copilot_runtime.base.errors import LimitExceeded, Misuse, Refused


class InvalidQuery(Misuse):
    """A pattern, or a query in SPARQL, that means nothing."""

    is_hint_public = True


class RefusedQuery(Refused):
    """A query that would change data, or look elsewhere."""

    is_hint_public = True


class QueryTooLarge(LimitExceeded):
    """A query that is too long, or takes too much to answer."""

    is_hint_public = True
