"""Keeps an origin's listing from run to run, in the folder of --cache-disk: a million names in two seconds.

    DIR/stoker-remembered-1/<digest of the URL>.listing     head, then a part for each folder

A part is read when its folder is asked for. What is found here is as old as the run that kept it: whoever
uses it looks at the origin again (tree.py).
Promise: a damaged file is none; one is replaced at once, so that no run reads half of it.
One thread at a time may save.
"""

import contextlib
import json
import struct
import zlib
from collections.abc import Collection, Mapping
from hashlib import blake2b

from stoker.kept_files import KeptFolder
from stoker.storage.origins import Entry
from stoker.storage.serving.folder import Folder

_HEAD = struct.Struct("<8sQI")  # name of the format, bytes of the contents' JSON, its crc
_MAGIC = b"stoklis2"
_MAX_NBYTES = 1 << 30  # of some 10 million names
_LISTED, _LEARNT = "listed", "learnt"
Contents = dict[str, dict[str, tuple[int, int, int]]]  # kind, folder: offset, bytes, crc


class KeptListing:
    """folder: where it is kept. Reading fails silently: then there is nothing kept."""

    def __init__(self, folder: KeptFolder, url: str) -> None:
        self._files = folder
        self._name = f"{blake2b(url.encode(), digest_size=16).hexdigest()}.listing"
        self._contents: Contents = {}
        self._data = b""
        with contextlib.suppress(ValueError, struct.error):
            data = folder.read(self._name, _MAX_NBYTES)
            magic, nbytes, crc = _HEAD.unpack_from(data)
            told = data[_HEAD.size : _HEAD.size + nbytes]
            if magic == _MAGIC and zlib.crc32(told) == crc:
                self._contents, self._data = json.loads(told), data[_HEAD.size + nbytes :]

    def listed(self, folder: str) -> Folder | None:
        """Return a folder as it was listed; None if it is not known."""
        return self._part(_LISTED, folder)

    def learnt(self, folder: str) -> dict[str, Entry]:
        """Return entries of a folder's files that were learnt by reading them."""
        found = self._part(_LEARNT, folder)
        return {} if found is None else found.entries

    def _part(self, kind: str, folder: str) -> Folder | None:
        where = self._contents.get(kind, {}).get(folder)
        if where is None:
            return None
        offset, nbytes, crc = where
        data = self._data[offset : offset + nbytes]
        return Folder(folder, None, data) if zlib.crc32(data) == crc else None

    def save(
        self,
        listed: Mapping[str, Folder],
        learnt: Mapping[str, Folder],
        doubted: Collection[str] = (),
    ) -> None:
        """Keep what this run has found out, and of other folders what was kept. doubted: folders whose
        listing is not kept. Raises OSError."""
        contents: Contents = {_LISTED: {}, _LEARNT: {}}
        parts: list[bytes] = []
        at = 0
        for kind, found in ((_LISTED, listed), (_LEARNT, learnt)):
            kept = self._contents.get(kind, {})
            for folder in {**kept, **found}:
                if kind == _LISTED and folder in doubted:
                    continue
                if folder in found:
                    data = found[folder].packed()
                else:
                    offset, nbytes, _ = kept[folder]
                    data = self._data[offset : offset + nbytes]
                contents[kind][folder] = at, len(data), zlib.crc32(data)
                parts.append(data)
                at += len(data)
        told = json.dumps(contents).encode()
        self._files.remove_torn()
        head = _HEAD.pack(_MAGIC, len(told), zlib.crc32(told))
        self._files.write(self._name, [head, told, *parts])
