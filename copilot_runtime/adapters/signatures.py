"""Signatures of reasoning, tagged with the name of the provider that signed it.

A provider refuses the signature of another, and a conversation may see several: an application
changes its model, or asks two. So a signature is stored as `name:value`, and sent only to the
provider that signed it.
"""

from copilot_runtime.api.messages import ActionExecutionMessage, ReasoningMessage


def tag_signature(provider: str, value: str) -> str:
    """Return the value of a `ReasoningSignature` of that provider."""
    return f"{provider}:{value}"


def read_signature(message: ReasoningMessage | ActionExecutionMessage, provider: str) -> str | None:
    """Return the signature of that provider on the message, or None if there is none."""
    if isinstance(message, ReasoningMessage):
        signature = message.signature
    else:
        signature = (message.extra or {}).get("encryptedValue")
    if not provider or not isinstance(signature, str) or not signature.startswith(f"{provider}:"):
        return None
    return signature.removeprefix(f"{provider}:") or None
