"""Inputs that are nearly right: over HTTP, over WebSockets, and from models and agents.

`FUZZ=200000 pytest -rP tests/fuzz` tries as many of them, and says which took longest;
`FUZZ_SEED` changes all. Input 17 of a kind is the same in every run with the same seed, however
many there are.
"""

import os

INPUTS = int(os.environ.get("FUZZ", "2000"))
SEED = os.environ.get("FUZZ_SEED", "0")
