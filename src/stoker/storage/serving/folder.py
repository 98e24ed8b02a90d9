"""What an origin lists in one folder, and how that is kept.

Pure. Of a million names that a script only walks through, entries are never asked for: of a folder that
was kept they are made when one is.
"""

import struct
from array import array
from functools import cached_property
from hashlib import blake2b

from stoker.storage.origins import Entry

_HEAD = struct.Struct("<QQQ")  # names; bytes of the names, bytes of the tags


class Folder:
    """Raises ValueError or struct.error if `data`, which `packed` has returned, is none of that."""

    def __init__(self, path: str, entries: dict[str, Entry] | None, data: bytes = b"") -> None:
        """path: below the origin's URL; data: what the entries are made of if there are none."""
        self.path, self._entries = path, entries
        self._data, self._at = data, 0
        if entries is not None:
            self.names = sorted(entries)
            return
        num, names_nbytes, self._tags_nbytes = _HEAD.unpack_from(data)
        self._at = _HEAD.size + names_nbytes
        names = data[_HEAD.size : self._at].decode(errors="surrogateescape")
        self.names = names.split("\0") if num else []

    @property
    def entries(self) -> dict[str, Entry]:
        """By name; not to be changed."""
        if self._entries is None:
            tags_at = self._at + 25 * len(self.names)
            nbytes, mtimes_ns = self._numbers("q", 9), self._numbers("q", 17)
            tags = self._data[tags_at : tags_at + self._tags_nbytes].decode().split("\0")
            if not self.names:
                tags = []
            rows = map(Entry, map(bool, self.are_folders), nbytes, mtimes_ns, tags)
            self._entries = dict(zip(self.names, rows, strict=True))
        return self._entries

    @cached_property
    def are_folders(self) -> bytes:
        """Of each name, in order: 1 if it is a folder."""
        if self._data:
            return self._data[self._at : self._at + len(self.names)]
        return bytes(self.entries[name].is_folder for name in self.names)

    @cached_property
    def inodes(self) -> "array[int]":
        """Of each name, in order."""
        if self._data:
            return self._numbers("Q", 1)
        above = f"{self.path}/" if self.path else ""
        return array("Q", (inode_of(f"{above}{name}") for name in self.names))

    def _numbers(self, code: str, at: int) -> "array[int]":
        """Return a column of eight bytes each, of those that begin so many bytes a name behind the names."""
        start = self._at + at * len(self.names)
        return array(code, self._data[start : start + 8 * len(self.names)])

    def packed(self) -> bytes:
        """Return its bytes: names, and columns of what each is, inodes, sizes, times; tags."""
        names = "\0".join(self.names).encode(errors="surrogateescape")
        entries = [self.entries[name] for name in self.names]
        tags = "\0".join(entry.tag for entry in entries).encode()
        nbytes = array("q", (entry.nbytes for entry in entries))
        mtimes_ns = array("q", (entry.mtime_ns for entry in entries))
        columns = (self.are_folders, self.inodes.tobytes(), nbytes.tobytes(), mtimes_ns.tobytes())
        return _HEAD.pack(len(entries), len(names), len(tags)) + names + b"".join(columns) + tags


def inode_of(path: str) -> int:
    """Return the same number for the same path, in every run: what is remembered of files asks for it."""
    data = f"/{path}".encode(errors="surrogateescape")
    return int.from_bytes(blake2b(data, digest_size=8).digest()) >> 1
