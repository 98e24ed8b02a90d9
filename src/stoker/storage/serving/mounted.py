"""One mount: its paths, the origin's files, and what a script gets where the origin fails.

Promise: what cannot be had is an OSError as a file system gives it, and its URL is said on stderr.
"""

import errno
import os

from stoker.storage.origins import (
    UNKNOWN,
    Changed,
    Denied,
    Entry,
    Missing,
    Origin,
    OriginError,
    Piece,
)
from stoker.storage.peers.answering import Later
from stoker.storage.reading.blocks import Blocks
from stoker.storage.reading.file import File, file_of
from stoker.storage.serving.folder import Folder
from stoker.storage.serving.page_cache import is_cached
from stoker.storage.serving.tree import Tree

# So much of a large file is fetched before a sample asks for it: it may only look at its header.
MOST_AHEAD_NBYTES = 32 << 20


class Mounted:
    """path: where it is mounted; without a slash at its end."""

    def __init__(self, path: str, origin: Origin, tree: Tree, blocks: Blocks) -> None:
        try:
            self._folder_fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._folder_fd = -1
        self.path, self.origin, self.tree = path, origin, tree
        self._blocks = blocks
        self._files: dict[str, File] = {}  # that were opened, by path
        self._was_read: set[str] = set()  # the kernel may have these

    def folder(self, path: str) -> Folder:
        """Return what is in a folder. Raises OSError."""
        try:
            return self.tree.folder(path)
        except Missing as error:
            if self.origin.has_sizes:
                raise as_os_error(error, self.origin.url_of(path)) from error
            # It may hold files all the same: an empty list would be a dataset of none.
            raise OSError(errno.EACCES, str(error), self.origin.url_of(path)) from error
        except OriginError as error:
            raise as_os_error(error, self.origin.url_of(path)) from error

    def entry(self, path: str) -> Entry:
        """Return an entry, a file's with its size. Raises OSError."""
        try:
            found = self.tree.entry(path)
            return found if found.nbytes != UNKNOWN else self._file(path).known
        except OriginError as error:
            raise as_os_error(error, self.origin.url_of(path)) from error

    def read(self, path: str, start: int, nbytes: int) -> bytes:
        """Return up to so many bytes of a file. Raises OSError."""
        try:
            self._was_read.add(path)
            return self._blocks.read(self._file(path), start, nbytes)
        except OriginError as error:
            if isinstance(error, Changed):
                self.tree.doubt(path)
            raise as_os_error(error, self.origin.url_of(path)) from error

    def piece_for_peer(
        self, path: str, start: int, end: int, known: Entry, may_wait: bool
    ) -> Piece | Later | None:
        """Return bytes of a file for another machine, which knows it so; Later or None if they have to be
        waited for, and may not. Raises OriginError."""
        if known.nbytes != UNKNOWN:
            file = file_of(self.origin, path, known)
        elif may_wait:
            file = self._file(path)
        else:
            return None
        data = self._blocks.read_for_peer(file, start, min(end, file.nbytes), may_wait)
        if data is None:
            return None
        return Piece(file.known, data) if isinstance(data, bytes) else Later(data.subscribe)

    def fetch_ahead(self, path: str) -> bool:
        """Have a file, of a large one the beginning, fetched before it is asked for, unless the kernel has it.
        Returns whether all of it is kept here to the run's end. Raises OriginError where it is not there."""
        file = self._files.get(path) or file_of(self.origin, path, self.tree.entry(path))
        if file.known.is_folder:
            return True
        file = self._hinted(file)
        last = min(file.num_blocks, MOST_AHEAD_NBYTES // file.block_nbytes) - 1
        if not self._blocks.lacks(file, 0, last):
            return self._blocks.keeps(file, last)
        if path not in self._was_read or not is_cached(self._folder_fd, path, 0, file.nbytes):
            self._blocks.fetch_ahead(file, 0, last)
        return False

    def found(self, file: File) -> None:
        """Note what was learnt of a file by reading it."""
        self.tree.learn(file.path, file.known)
        self._files[file.path] = file

    def _hinted(self, file: File) -> File:
        """Of a file whose size is not known: with what an earlier run has learnt of it."""
        hint = self.tree.hint(file.path) if file.nbytes == UNKNOWN else None
        return file if hint is None else file._replace(hint=hint)

    def _file(self, path: str) -> File:
        file = self._files.get(path)
        if file is None or self.tree.has_changed(path):
            file = file_of(self.origin, path, self.tree.entry(path))
            if file.nbytes == UNKNOWN:
                file = self._hinted(file)
                file = self._blocks.find_out(file, lambda: self._files.get(path))
            self._files[path] = file
        return file


def as_os_error(error: OriginError, url: str) -> OSError:
    code = errno.EIO
    if isinstance(error, Missing):
        code = errno.ENOENT
    elif isinstance(error, Denied):
        code = errno.EACCES
    elif isinstance(error, Changed):
        code = errno.ESTALE
    return OSError(code, f"{error}", url)
