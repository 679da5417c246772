"""Whose a resource is: its URI says it, so nobody can claim another's by what they write.

    common.User.ann/common.Conversation.t1/file.Upload.u1       belongs to the user ann
    common.Conversation.t1/file.Upload.u1                       of somebody who has not signed in
    common.Message.m1                                           belongs to nobody

Who may write a resource is judged by the same URI, the user is the one of the `authenticate` hook,
and a dot or slash in the name of a user is escaped: so nobody can write below another user.
"""

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from hashlib import sha512
from typing import Literal

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.access import Access, Actor
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    contains,
    escape_name,
    unescape_name,
)
from copilot_runtime.threads.validation import check_thread_id

USER = "common.User"
CONVERSATION = "common.Conversation"
UPLOAD = "file.Upload"
"""The type of a file that somebody has attached in a conversation."""

OWNERSHIP = "ownership"
"""What a decision names as its rule where the owner of a resource decides."""

WELL_FORMED = re.compile(r"[^/.][^/]*(?:/[^/.][^/]*)*")
"""No part of a URI is empty or begins with a dot: what is not of this form, nobody may touch."""

_DIGEST_LENGTH = sha512().digest_size * 2
_OWNED = re.compile(rf"({re.escape(USER)}|{re.escape(CONVERSATION)})\.([^/]*)")


@dataclass(frozen=True, slots=True)
class Owner:
    """To whom a resource belongs: a user, or who is in the conversation of that name."""

    kind: Literal["user", "conversation"]
    name: str

    @property
    def uri(self) -> str:
        """The resource at whose URI all begin that belongs to them."""
        return f"{USER if self.kind == 'user' else CONVERSATION}.{escape_name(self.name)}"

    def __str__(self) -> str:
        what = "the user" if self.kind == "user" else "the people in the conversation"
        return f"{what} {self.name!r}"


def shorten_name(name: str) -> str:
    """Return what the resource of a user or a thread is called.

    A name that no file could have is replaced by a digest, which is longer than every name that
    is not: nobody can be called so.
    """
    if len(escape_name(name).encode(errors="surrogatepass")) < _DIGEST_LENGTH:
        return name
    return sha512(name.encode(errors="surrogatepass")).hexdigest()


def is_shortened(name: str) -> bool:
    """Return whether a resource is called by a digest, of which nobody can tell whose it is."""
    return shorten_name(name) != name


def user_identifier(user: str) -> Identifier:
    """Return what all resources of a user are below."""
    return Identifier(USER, shorten_name(user))


def conversation_identifier(user: str | None, thread_id: str) -> Identifier:
    """Return the conversation that a thread of a user is. Without a user, it is at the root."""
    parent = str(user_identifier(user)) if user else ""
    return Identifier(CONVERSATION, shorten_name(thread_id), parent)


def check_conversation(thread_id: str) -> None:
    """Raise `Misuse` for the id of a thread below which nothing can be stored."""
    check_thread_id("thread id", thread_id)
    if not shorten_name(thread_id).isprintable():
        raise Misuse("The thread id has characters that are no text.", hint="Send it without them.")


def build_actor(
    user: str | None, thread_id: str = "", *, groups: frozenset[str] = frozenset(), agent: str = ""
) -> Actor:
    """Return who acts in a thread: a user of the `authenticate` hook, or nobody."""
    conversation = str(conversation_identifier(user, thread_id)) if thread_id else ""
    return Actor(user or "", groups, agent, conversation)


def find_owner(uri: str) -> Owner | None:
    """Return to whom a resource belongs: None for those that belong to nobody."""
    found = _OWNED.match(uri)
    if found is None:
        return None
    kind = "user" if found[1] == USER else "conversation"
    return Owner(kind, unescape_name(found[2]))


def owned_uris(actor: Actor) -> list[str]:
    """Return the resources below which all belongs to an actor."""
    owned = [str(user_identifier(actor.name))] if actor.name else []
    if actor.conversation.startswith(f"{CONVERSATION}.") and "/" not in actor.conversation:
        owned.append(actor.conversation)
    return owned


def owns(actor: Actor, uri: str) -> bool:
    """Return whether a resource belongs to an actor."""
    return any(contains(owned, uri) for owned in owned_uris(actor))


def narrow_access(access: Access, conversation: str) -> Access:
    """Return what an access allows, but of files in conversations only those of one, by its URI.

    Somebody may read all that is theirs. What was attached in one conversation need not turn up in
    the searches of another.
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
