"""What providers sign their thoughts with, marked with the provider's name.

A provider refuses the signature of another, and a conversation may see several: an application
changes its model, or asks two. So a signature travels as `name:value`, and only who signed it
gets it back.
"""

from copilot_runtime.messages import ActionExecutionMessage, ReasoningMessage


def tag_signature(provider: str, value: str) -> str:
    """Return what a `ReasoningSignature` of that provider holds."""
    return f"{provider}:{value}"


def read_signature(message: ReasoningMessage | ActionExecutionMessage, provider: str) -> str | None:
    """Return what that provider signed the message with, if it did."""
    if isinstance(message, ReasoningMessage):
        given = message.signature
    else:
        given = (message.extra or {}).get("encryptedValue")
    if not provider or not isinstance(given, str) or not given.startswith(f"{provider}:"):
        return None
    return given.removeprefix(f"{provider}:") or None
