"""The section of the settings for how much somebody may do."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from copilot_runtime.config.section import Section, Words
from copilot_runtime.config.store_url import check_store_url

_RATE = re.compile(
    r"(?P<amount>\d{1,15}(\.\d{1,6})?)\s*(/|per\s)\s*(?P<count>\d{1,6}\s*)?"
    r"(?P<unit>second|minute|hour|day|week|month)s?"
)
_SECONDS = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
    "month": 2_592_000,
}


def parse_rate(text: str) -> tuple[float, int]:
    """Return an amount and its seconds of `100/minute` or `5 per 2 hours`. Raises `ValueError`."""
    found = _RATE.fullmatch(text.strip().lower())
    amount = float(found["amount"]) if found else 0.0
    seconds = int(found["count"] or 1) * _SECONDS[found["unit"]] if found else 0
    if not amount or not seconds:
        raise ValueError(
            f"{text!r} is no rate: write 100/minute, 5000/day or 2/10 seconds; there are "
            f"{', '.join(_SECONDS)}"
        )
    return amount, seconds


def _check_rates(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        parse_rate(text)
    return texts


def _check_counts(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not parse_rate(text)[0].is_integer():
            raise ValueError(f"{text!r} has a fraction: only whole ones are counted")
    return texts


Rates = Annotated[Words, AfterValidator(_check_rates)]
Counts = Annotated[Words, AfterValidator(_check_rates), AfterValidator(_check_counts)]
AtOnce = Annotated[int, Field(ge=0)]


class LimitSettings(Section):
    """How much somebody may do. Whoever has not signed in is counted by their address."""

    store: Annotated[
        str,
        Field(pattern=r"^(memory|(async\+)?rediss?(\+\w+)?://.+|unix://.+)$"),
        AfterValidator(check_store_url),
    ] = Field(
        default="memory",
        description="Where is counted: memory, of each process; redis://... for all together.",
        repr=False,  # it may hold a password
    )
    requests_per_user: Counts = Field(
        default=(), description="Requests of a user, such as 120/minute, 5000/day."
    )
    requests_per_tenant: Counts = Field(default=(), description="Requests of all of a tenant.")
    requests_per_key: Counts = Field(default=(), description="Requests with one API key.")
    runs_per_user: Counts = Field(
        default=(),
        description="Questions of a user, such as 5/minute: runs, but not what goes on "
        "with one after a browser action or an approval.",
    )
    runs_per_tenant: Counts = Field(default=(), description="Questions of all of a tenant.")
    runs_per_key: Counts = Field(default=(), description="Questions with one API key.")
    runs_at_once_per_user: AtOnce = Field(
        default=0, description="Runs of a user at one time; 0 for any number."
    )
    runs_at_once_per_tenant: AtOnce = Field(
        default=0, description="Runs of all of a tenant at one time."
    )
    runs_at_once_per_key: AtOnce = Field(
        default=0, description="Runs with one API key at one time."
    )
    thread_streams_per_user: AtOnce = Field(
        default=20,
        description="Pages of a user that follow changes of threads at one time, in each "
        "process; 0 for any number.",
    )
    tokens_per_user: Counts = Field(
        default=(), description="Tokens of models for a user, such as 200000/day."
    )
    tokens_per_tenant: Counts = Field(default=(), description="Tokens for all of a tenant.")
    tokens_per_key: Counts = Field(default=(), description="Tokens with one API key.")
    dollars_per_user: Rates = Field(
        default=(), description="US dollars for models for a user, such as 2.50/day."
    )
    dollars_per_tenant: Rates = Field(default=(), description="US dollars for all of a tenant.")
    dollars_per_key: Rates = Field(default=(), description="US dollars with one API key.")

    def find_longest(self) -> int:
        """Return the seconds of the limit that counts for the longest time; 0 without any."""
        rates = [value for _, value in self if isinstance(value, tuple)]
        return max((parse_rate(text)[1] for texts in rates for text in texts), default=0)
