"""The classes of providers' errors: how each is recognised, and whether the request is repeated.

This table is the only place that knows codes, statuses and phrases; adapters find the error in
their provider's bytes. Sources of the codes:
https://platform.openai.com/docs/guides/error-codes,
https://platform.openai.com/docs/api-reference/responses/object (`error.code`),
https://platform.claude.com/docs/en/api/errors, https://ai.google.dev/gemini-api/docs/troubleshooting,
https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html,
https://openrouter.ai/docs/api/reference/errors-and-debugging,
https://api-docs.deepseek.com/quick_start/error_codes.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.adapters.invalid_answers import MALFORMED
from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    InvalidAnswer,
    LimitExceeded,
    NetworkError,
    PaymentRequired,
    RateLimited,
    Refused,
    ToolsRefused,
)


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """A class of errors. An error belongs to it by its status, or by a code or a phrase.

    Codes and phrases count for errors without a status, and for those with one of `overridden`.
    """

    name: str
    error: type[CopilotError]
    is_retried: bool
    """Whether the request is repeated, as long as nothing of the answer has been shown."""
    statuses: Collection[int] = ()
    overridden: Collection[int] = ()
    codes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Codes and types of errors, in lower case → the equivalent status."""
    phrases: re.Pattern[str] | None = None

    def matches(self, codes: Iterable[str], reason: str) -> bool:
        """Return whether one of the codes, or a phrase in the reason, is of this class."""
        if any(code in self.codes for code in codes):
            return True
        return self.phrases is not None and self.phrases.search(reason) is not None


def _phrases(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE)


def _codes(**codes: str) -> Mapping[str, int]:
    """Return the table of codes from the codes of each status: `_400="…"`."""
    return {code: int(status[1:]) for status, names in codes.items() for code in names.split()}


_CLIENT = range(300, 500)
"""Statuses of requests that are wrong; a redirect is one for a wrong base URL."""

_TOOLS = r"(custom )?(tools?|tool[ _-]?(use|calls?|calling)|function[ _-]?call(s|ing)?)"

ERROR_CLASSES: Sequence[ErrorClass] = (
    ErrorClass(
        "unreadable answer",
        InvalidAnswer,
        is_retried=True,  # once
        overridden=range(400, 600),
        codes=dict.fromkeys(MALFORMED, 502),
    ),
    ErrorClass(
        "context length",
        LimitExceeded,
        is_retried=False,
        overridden=(400, 413, 422),
        codes=_codes(_400="context_length_exceeded"),
        phrases=_phrases(
            r"context.length",
            r"context.window",
            r"prompt is too long",
            r"input is too long",
            r"too many (input )?tokens",
            r"input token count",
            r"maximum.{0,30}tokens.{0,60}(messages|prompt|input)",
            r"reduce the length of the (messages|prompt|input)",
        ),
    ),
    ErrorClass(
        "content filter",
        Refused,
        is_retried=False,
        overridden=_CLIENT,
        codes=_codes(
            _400="bio_policy content_filter content_policy_violation "
            "image_content_policy_violation misalignment_policy_violation "
            "responsibleaipolicyviolation"
        ),
        phrases=_phrases(
            r"blocked by our content filters",  # Bedrock, which sends no code for it
            r"input was flagged",  # OpenRouter, with status 403
        ),
    ),
    ErrorClass(
        "no tools",  # the model takes none
        ToolsRefused,
        is_retried=False,
        overridden={*range(400, 600)} - {401, 403, 429},
        phrases=_phrases(
            rf"(does|do)(n't| not) support (the use of |the |parameters?: \[?['\"]?)?{_TOOLS}\b"
            r"(?![_ -]?choice)(?! (of|with) )",
            rf"(?<!parallel )\b{_TOOLS}['\"`]? (is|are) not (supported|enabled|available)",
            rf"cannot use {_TOOLS}|(?<!parallel )\b{_TOOLS} not supported",
            r"no endpoints found that support tool use",  # OpenRouter
            # FastAPI, by `read_sentence` or as Python writes the error
            r"\btools(: |'\), 'msg': ')(extra (inputs|fields)|input should be none)",
            r"requires --enable-auto-tool-choice",  # vLLM
            r"tools param requires --jinja",  # llama.cpp
        ),
    ),
    ErrorClass(
        "billing",
        PaymentRequired,
        is_retried=False,
        statuses=(402,),
        overridden=_CLIENT,
        codes=_codes(
            _402="arrearage billing_error billing_hard_limit_reached billing_not_active "
            "enforced_spend_limit_reached insufficient_balance insufficient_credits "
            "insufficient_quota payment_required"
        ),
        phrases=_phrases(
            r"credit balance is too low",  # Anthropic, with status 400, as the next
            r"(spend(ing)?|api usage) limit",
            r"insufficient (balance|credits?|funds)",
            r"requires more credits",
        ),
    ),
    ErrorClass(
        "authentication",
        AuthenticationFailed,
        is_retried=False,
        statuses=(401, 403),
        overridden=(400,),
        codes=_codes(
            _401="authentication_error invalid_api_key unauthenticated unauthorized "
            "unrecognizedclientexception",
            _403="accessdeniedexception permission_denied permission_error",
            _400="api_key_invalid",  # Google
        ),
        phrases=_phrases(r"(invalid|incorrect|missing|wrong) api.?key"),
    ),
    ErrorClass(
        "rate limit",
        RateLimited,
        is_retried=True,
        statuses=(429,),
        overridden=(400,),
        codes=_codes(
            _429="modelnotreadyexception rate_limit_error rate_limit_exceeded requests "
            "resource_exhausted throttlingexception tokens too_many_requests "
            "toomanyrequestsexception"
        ),
        phrases=_phrases(r"rate.?limit(ed| exceeded| reached)", r"too many requests"),
    ),
    ErrorClass(
        "unavailable",
        NetworkError,
        is_retried=True,
        # the client errors among them are transient, too
        statuses=(408, 409, 424, 425, 499, *range(500, 600)),
        codes=_codes(
            _500="api_error internal internal_server_error internalserverexception "
            "modelstreamerrorexception server_error",
            _503="insufficient_system_resource server_is_overloaded serviceunavailableexception "
            "slow_down unavailable",
            _504="deadline_exceeded modeltimeoutexception timeout_error",
            _529="overloaded_error",
        ),
        phrases=_phrases(
            r"overloaded",
            r"internal server error",
            r"bad gateway",
            r"service (is )?(temporarily )?unavailable",
            r"gateway time-?out",
            r"upstream connect error",
            r"no healthy upstream",
        ),
    ),
    ErrorClass(
        "too large",
        LimitExceeded,
        is_retried=False,
        statuses=(413,),
        codes=_codes(_413="request_too_large"),
    ),
    ErrorClass(
        "invalid request",
        ConfigurationFailed,
        is_retried=False,
        statuses=_CLIENT,
        codes=_codes(
            _400="failed_precondition invalid_argument invalid_image invalid_image_url "
            "invalid_prompt invalid_request_error validationexception",
            _404="model_not_found not_found not_found_error resourcenotfoundexception",
        ),
    ),
)
"""The classes. Where an error is of several, the first counts."""

DEFAULT_STATUS = 500
"""The status of an error of which neither status, code nor words are known."""


def classify(status: int | None, codes: Sequence[Any], reason: str) -> tuple[ErrorClass, int]:
    """Return the class of an error and its status.

    `status` is that of the response, `None` inside a successful one; `codes` are the values in the
    error that may be a code; `reason` is the provider's sentence.
    """
    names = [code.lower() for code in codes if isinstance(code, str)]
    if status is None:
        status = next(_find_statuses(codes, names, reason), DEFAULT_STATUS)
    for one in ERROR_CLASSES:
        if status in one.overridden and one.matches(names, reason):
            return one, status
    last = ERROR_CLASSES[-1]
    return next((one for one in ERROR_CLASSES if status in one.statuses), last), status


def find_status(text: str) -> int | None:
    """Return the status that the words of a text stand for, or that is in a short one, or None."""
    return next(_find_statuses(_NUMBER.findall(text), (), text), None)


_NUMBER = re.compile(r"\A(?:.{0,99}\b)?([45]\d\d)\b.{0,99}\Z", re.DOTALL)


def _find_statuses(codes: Sequence[Any], names: Sequence[str], reason: str) -> Iterator[int]:
    """Yield the statuses that a text may stand for: of numbers, of codes, of phrases."""
    for code in codes:
        if isinstance(code, str) and code.isdecimal():
            code = int(code[:4])
        if isinstance(code, int) and 400 <= code < 600:
            yield code
    for one in ERROR_CLASSES:
        yield from (one.codes[name] for name in names if name in one.codes)
    for one in ERROR_CLASSES:
        if one.phrases is not None and one.phrases.search(reason):
            yield next(iter(one.codes.values()), 400)
