"""Pictures in terminals that can show them, by the protocols of iTerm2 and kitty."""

import os
import sys
from base64 import b64encode
from collections.abc import Mapping
from typing import Literal

_BLOCK = 4096
"""Characters of a picture in one command of kitty's protocol, at most."""
_ITERM = frozenset({"iTerm.app", "WezTerm", "mintty", "rio"})

PictureProtocol = Literal["iterm", "kitty"]


def find_protocol(environment: Mapping[str, str] = os.environ) -> PictureProtocol | None:
    """Return how this terminal shows pictures; None if it does not, or is none."""
    if not sys.stdout.isatty() or environment.get("TMUX"):
        return None
    if environment.get("KITTY_WINDOW_ID") or environment.get("TERM") in (
        "xterm-kitty",
        "xterm-ghostty",
    ):
        return "kitty"
    if environment.get("TERM_PROGRAM") in _ITERM or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return None


def encode_picture(png: bytes, protocol: PictureProtocol) -> str:
    """Return what a terminal shows as the picture."""
    text = b64encode(png).decode()
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;size={len(png)}:{text}\x07\n"
    blocks = [text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK)]
    commands: list[str] = []
    for number, block in enumerate(blocks):
        head = "a=T,f=100," if number == 0 else ""
        more = int(number < len(blocks) - 1)
        commands.append(f"\x1b_G{head}m={more};{block}\x1b\\")
    return "".join(commands) + "\n"
