"""The cluster: server processes that share a thread store and send each other messages."""

from copilot_runtime.extensions.cluster.peers import Peers, TakeNotice

__all__ = ["Peers", "TakeNotice"]
