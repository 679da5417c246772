"""Move what is stored from one place to another."""

from collections.abc import Callable

from copilot_runtime.base.batches import split_batches
from copilot_runtime.extensions.storage.storage import Storage


async def copy_objects(
    source: Storage,
    target: Storage,
    prefix: str = "",
    *,
    progress: Callable[[int, int], None] | None = None,
    at_once: int = 100,
) -> int:
    """Copy the objects whose keys begin with a prefix, and return how many there were.

    `progress` gets how many are done, and how many there are. Objects that the target has already
    are written again; one that vanishes meanwhile is left out.
    """
    keys = await source.find_by_prefix(prefix)
    copied = 0
    done = 0
    for batch in split_batches(keys, at_once):
        objects = await source.get_many(batch)
        await target.put_many(objects)
        copied += len(objects)
        done += len(batch)
        if progress is not None:
            progress(done, len(keys))
    return copied
