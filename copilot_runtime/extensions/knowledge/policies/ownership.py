"""The owner of a resource, which its URI determines, so that no content can claim ownership.

    common.User.ann/common.Conversation.t1/file.Upload.u1       belongs to the user ann
    common.Conversation.t1/file.Upload.u1                       belongs to an anonymous user
    common.Message.m1                                           has no owner

Write access is judged by the same URI, the user comes from the `authenticate` hook, and dots and
slashes in user names are escaped: so no user can write below the prefix of another.
"""

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha512
from typing import Literal

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.access import Access, Actor
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    contains,
    escape_name,
    strip_namespace,
    unescape_name,
)
from copilot_runtime.threads.validation import check_thread_id

USER = "common.User"
CONVERSATION = "common.Conversation"
UPLOAD = "file.Upload"
"""The type of files that users attach in conversations."""

OWNERSHIP = "ownership"
"""The rule name of decisions by ownership."""

WELL_FORMED = re.compile(r"[^/.][^/]*(?:/[^/.][^/]*)*")
"""A valid URI: no part is empty or begins with a dot. Others are always denied."""

_DIGEST_LENGTH = sha512().digest_size * 2
_OWNED = re.compile(rf"({re.escape(USER)}|{re.escape(CONVERSATION)})\.([^/]*)")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a resource: a user, or the anonymous participant of a conversation."""

    kind: Literal["user", "conversation"]
    name: str

    @property
    def uri(self) -> str:
        """The URI that all resources of the owner begin with."""
        return f"{USER if self.kind == 'user' else CONVERSATION}.{escape_name(self.name)}"

    def __str__(self) -> str:
        what = "the user" if self.kind == "user" else "the people in the conversation"
        return f"{what} {self.name!r}"


def shorten_name(name: str) -> str:
    """Return the resource name of a user or a thread.

    A name that is not a valid file name is replaced by a digest, which is longer than every
    other name, so that they cannot collide.
    """
    if len(escape_name(name).encode(errors="surrogatepass")) < _DIGEST_LENGTH:
        return name
    return sha512(name.encode(errors="surrogatepass")).hexdigest()


def is_shortened(name: str) -> bool:
    """Return whether a name is a digest, from which the original cannot be derived."""
    return shorten_name(name) != name


def user_identifier(user: str) -> Identifier:
    """Return the identifier above all resources of a user."""
    return Identifier(USER, shorten_name(user))


def build_prefix(user: str, *, is_prefix: bool = False) -> str:
    """Return the beginning of all URIs of a user, or of the users with a common prefix.

    An empty user is anonymous. Users whose names are shortened have no prefix in common.
    """
    if not user:
        return f"{CONVERSATION}."
    return f"{USER}.{escape_name(user)}" if is_prefix else f"{user_identifier(user)}/"


def conversation_identifier(user: str | None, thread_id: str) -> Identifier:
    """Return the conversation of a user's thread; without a user, it is at the root."""
    parent = str(user_identifier(user)) if user else ""
    return Identifier(CONVERSATION, shorten_name(thread_id), parent)


def check_conversation(thread_id: str) -> None:
    """Raise `Misuse` if a thread identifier cannot be part of a storage key."""
    check_thread_id("thread id", thread_id)
    if not shorten_name(thread_id).isprintable():
        raise Misuse("The thread id has characters that are no text.", hint="Send it without them.")


def build_actor(
    user: str | None, thread_id: str = "", *, groups: frozenset[str] = frozenset(), agent: str = ""
) -> Actor:
    """Return the actor of a thread: a user of the `authenticate` hook, or an anonymous one."""
    conversation = str(conversation_identifier(user, thread_id)) if thread_id else ""
    return Actor(user or "", groups, agent, conversation)


def admit_stranger(actor: Actor, uri: str) -> Actor:
    """Return an anonymous actor with access to the conversation of a URI; others as they are.

    The conversation of an anonymous user, like its thread, belongs to every caller who knows its
    identifier, which is part of the URI.
    """
    first = strip_namespace(uri).partition("/")[0]
    if actor.name or not first.startswith(f"{CONVERSATION}."):
        return actor
    return replace(actor, conversation=first)


def find_owner(uri: str) -> Owner | None:
    """Return the owner of a resource, or `None` if it has none."""
    found = _OWNED.match(uri)
    if found is None:
        return None
    kind = "user" if found[1] == USER else "conversation"
    return Owner(kind, unescape_name(found[2]))


def owned_uris(actor: Actor) -> list[str]:
    """Return the URIs whose descendants belong to an actor."""
    owned = [str(user_identifier(actor.name))] if actor.name else []
    if actor.conversation.startswith(f"{CONVERSATION}.") and "/" not in actor.conversation:
        owned.append(actor.conversation)
    return owned


def owns(actor: Actor, uri: str) -> bool:
    """Return whether a resource belongs to an actor."""
    return any(contains(owned, uri) for owned in owned_uris(actor))


def narrow_access(access: Access, conversation: str) -> Access:
    """Restrict an access to the uploads of one conversation, given by its URI.

    Users may read all their uploads, but a file of one conversation should not appear in
    searches of another.
    """
    return _NarrowAccess(access, conversation)


class _NarrowAccess(Access):
    def __init__(self, access: Access, conversation: str) -> None:
        self._access = access
        self._conversation = conversation

    @property
    def key(self) -> Hashable:
        return self._access.key, self._conversation

    @property
    def immediate(self) -> Access | None:
        immediate = self._access.immediate
        return immediate and _NarrowAccess(immediate, self._conversation)

    def allows(self, uri: str) -> bool:
        return self._is_inside(uri) and self._access.allows(uri)

    def judge(self, uris: Iterable[str]) -> list[bool]:
        uris = [*uris]
        inside = [uri for uri in uris if self._is_inside(uri)]
        allowed = dict(zip(inside, self._access.judge(inside), strict=True))
        return [allowed.get(uri, False) for uri in uris]

    def _is_inside(self, uri: str) -> bool:
        return f"/{UPLOAD}." not in uri or contains(self._conversation, uri)
