"""Create database files that only their owner may read and write."""

import errno
import os
import threading
from pathlib import Path

_CREATING = threading.Lock()


def create_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read and write, unless there is a file.

    One that exists is not opened. When a process closes a file, all its POSIX locks on that file
    end, those of other connections of SQLite among them: another process would then take itself for
    the last one, and delete the log (`-wal`) into which this process still writes. Raises `OSError`
    where no file can be made, or what is there is a folder.
    """
    target = os.path.realpath(path)  # a link to a file that is not there yet will do
    with _CREATING:  # nobody else in this process opens the new file before it is closed here
        try:
            os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if Path(target).is_dir():
                code = errno.EISDIR
                raise IsADirectoryError(code, os.strerror(code), str(path)) from None
