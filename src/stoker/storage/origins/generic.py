"""Origin of every other fsspec URL: gs://, az://, sftp://, hf://, file://."""

import contextlib
import errno
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

from stoker.storage.origins.origin import (
    SILENT_S,
    UNKNOWN,
    Again,
    Answer,
    Changed,
    Denied,
    Entry,
    Get,
    Missing,
    Origin,
    OriginError,
    Piece,
    difference,
    identity_of,
    joined,
    shown,
)

# Of paramiko's `connect`.
_SSH_LIMITS = ("timeout", "banner_timeout", "auth_timeout", "channel_timeout")
NUM_ALONE = 8  # connections, where each is for one thread; sshd turns away more than ten that log in at once
NUM_FOLLOWERS = NUM_ALONE // 2  # of links; connections are left for who reads
_TAGS = ("ETag", "etag", "generation", "content_hash", "md5Hash", "oid", "blob_id", "version_id")


class Generic(Origin):
    has_sizes = True

    def __init__(self, url: str) -> None:
        self.url, self.identity = shown(url), identity_of(url)
        self.fs, folder = self._opened(url)
        self._open = partial(self._opened, url)
        self.folder = folder if folder == "/" else folder.rstrip("/")
        self._followers = ThreadPoolExecutor(NUM_FOLLOWERS, "storage-links")
        # With paramiko's sftp one thread reads another one's answer, which then waits for ever. Libraries that
        # nobody has looked at are taken for such ones.
        is_for_all = self.fs.async_impl or _protocol(self.fs) in ("file", "hf")
        self._spare: queue.LifoQueue[Any] | None = None if is_for_all else queue.LifoQueue()
        if self._spare is not None:
            for fs in [None] * (NUM_ALONE - 1) + [self.fs]:
                self._spare.put(fs)

    def _opened(self, url: str) -> tuple[Any, str]:
        import fsspec

        with _translated():
            is_ssh = url.startswith(("sftp://", "ssh://"))
            limits = dict.fromkeys(_SSH_LIMITS, SILENT_S) if is_ssh else {}
            fs, folder = fsspec.core.url_to_fs(url, skip_instance_cache=True, **limits)
            if is_ssh:
                fs.ftp.get_channel().settimeout(SILENT_S)  # else it waits for ever
        return fs, folder

    @contextlib.contextmanager
    def _lent(self) -> Iterator[Any]:
        """Lend a file system, to one thread at a time unless it is for all."""
        if self._spare is None:
            with _translated():
                yield self.fs
            return
        try:
            fs = self._spare.get(timeout=SILENT_S)
        except queue.Empty:
            raise Again("all connections are busy") from None
        is_well = False
        try:
            if fs is None:
                fs, _ = self._open()
            with _translated():
                yield fs
            is_well = True
        except (Missing, Denied):
            is_well = True
            raise
        finally:  # half of an answer may still come to one that failed
            if not is_well:
                with contextlib.suppress(Exception):
                    fs.client.close()  # paramiko's has a thread
            self._spare.put(fs if is_well else None)

    def url_of(self, path: str) -> str:
        first, mark, rest = self.url.partition("::")
        return f"{joined(first, path)}{mark}{rest}" if mark else joined(self.url, path)

    def list(self, folder: str) -> dict[str, Entry]:
        with self._lent() as fs:
            fs.invalidate_cache(self._at(folder))
            told = fs.ls(self._at(folder), detail=True)
        found = {}
        own = self._at(folder).strip("/")
        if [each["name"].strip("/") for each in told] == [own] and told[0]["type"] == "file":
            raise Missing("it is a file; name the folder that it lies in")
        links = []
        for each in told:
            path = each["name"].strip("/")
            if path == own:  # some stores list the folder itself, too
                continue
            name = path.rpartition("/")[2]
            if each["type"] == "link" or each.get("islink"):  # told is of the link itself
                links.append(name)
            else:
                found[name] = _entry_of(each)
        if links:
            paths = [joined(folder, name) if folder else name for name in links]
            followed = zip(links, self._followers.map(self._look_if_there, paths), strict=True)
            found.update((name, entry) for name, entry in followed if entry is not None)
        return found

    def _look_if_there(self, path: str) -> Entry | None:
        """Return what a link leads to; None where that is nothing."""
        with contextlib.suppress(Missing, Denied):
            return self.look(path)
        return None

    def look(self, path: str) -> Entry:
        with self._lent() as fs:
            fs.invalidate_cache(self._at(path))
            return _entry_of(fs.info(self._at(path)))

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        if known.nbytes == UNKNOWN:
            known = self.look(path)
            if known.nbytes == UNKNOWN:
                raise Denied("this store tells no sizes of files")
            end = min(end, known.nbytes)
        if start >= end:
            return Piece(known, b"")
        with self._lent() as fs:
            body: bytes = fs.cat_file(self._at(path), start=start, end=end)
        # After it, for a file that changed between the two would be told from neither before.
        if (now := self.look(path)) != known:
            raise Changed(difference(known, now))
        if len(body) != end - start:
            raise Again(f"{len(body)} bytes of {end - start} came")
        return Piece(known, body)

    def get(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Get | None:
        return None

    def close(self) -> None:
        self._followers.shutdown(wait=False, cancel_futures=True)

    def got(
        self,
        answer: Answer,
        path: str,
        start: int,
        end: int,
        known: Entry,
        hint: Entry | None = None,
    ) -> Piece:
        raise Denied("this store is not read by GETs")

    def _at(self, path: str) -> str:
        if not path or not self.folder:
            return path or self.folder
        return f"{self.folder.rstrip('/')}/{path}"


def _protocol(fs: Any) -> str:
    return fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]


def _entry_of(told: dict[str, Any]) -> Entry:
    if told.get("type") == "directory":
        return Entry(True)
    nbytes = told.get("size")
    tag = next((str(told[name]) for name in _TAGS if told.get(name)), "")
    return Entry(False, UNKNOWN if nbytes is None else int(nbytes), _mtime_ns(told), tag)


def _mtime_ns(told: dict[str, Any]) -> int:
    for name in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        when = told.get(name)
        if isinstance(when, (int, float)):
            return int(when * 1e9)
        if isinstance(when, datetime):
            return int(when.timestamp() * 1e9)
        if isinstance(when, str):
            try:
                return int(datetime.fromisoformat(when).timestamp() * 1e9)
            except ValueError:
                continue
    return 0


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn what fsspec's file systems raise into OriginErrors."""
    try:
        yield
    except OriginError:
        raise
    except Exception as error:
        raise _in_kind(error) from error


def _in_kind(error: Exception) -> OriginError:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, (FileNotFoundError, NotADirectoryError, KeyError)):
        return Missing(text)
    if isinstance(error, PermissionError) or "credential" in text.lower():
        return Denied(text)
    if isinstance(error, OSError) and error.errno in (
        errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM,
    ):  # fmt: skip
        is_missing = error.errno in (errno.ENOENT, errno.ELOOP)
        return Missing(text) if is_missing else Denied(text)
    if isinstance(error, (ImportError, ValueError, TypeError)):
        return Denied(text)
    return Again(text)
