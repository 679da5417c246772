"""The other server processes that share a store of threads, and what is asked of them."""

from copilot_runtime.extensions.cluster.peers import Peers, TakeNotice

__all__ = ["Peers", "TakeNotice"]
