"""Knows which folders and files an origin has: each folder is listed once, and files are as they were then.

Listings of folders that a script is about to walk into are fetched ahead. A listing that an earlier run
has kept is used at once, and compared with the origin's own meanwhile: what has changed since is an error.
Any thread may call it.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from itertools import compress
from typing import TypeVar

from stoker.clock import Deadline, now_s
from stoker.storage.origins import Again, Changed, Entry, Missing, Origin, OriginError
from stoker.storage.reading.retry import LIMIT_S, patiently
from stoker.storage.reading.stats import StorageStats
from stoker.storage.serving.folder import Folder
from stoker.storage.serving.kept_listing import KeptListing

NUM_LISTERS = 16
NUM_COMPARERS = 4
QUIET_S = 1.0  # without a folder that is read: who walks through a kept listing does not wait
_ROOT = Entry(True)
T = TypeVar("T")
_MAX_AHEAD = 100_000  # folders


class _Listing:
    """A folder's names, once they have come."""

    __slots__ = ("error", "folder", "has_come")

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.folder = Folder("", {})
        self.error: Exception | None = None


class Tree:
    def __init__(
        self,
        origin: Origin,
        stats: StorageStats,
        limit_s: float = LIMIT_S,
        kept: KeptListing | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """kept: by an earlier run; say: told if it was out of date."""
        self.origin, self._stats, self._limit_s = origin, stats, limit_s
        self._kept, self._say = kept, say
        self._has_said_old = False
        self._changed: set[str] = set()  # paths of which the kept listing was wrong
        self._fresh: dict[str, Folder] = {}  # folders as the origin lists them now
        self._lock = threading.Lock()  # guards _listings
        self._listings: dict[str, _Listing] = {}
        self._hints: dict[str, dict[str, Entry]] = {}
        self._learnt: dict[str, Entry] = {}  # by path, where the listing did not tell
        self._ahead: queue.Queue[str] = queue.Queue(_MAX_AHEAD)  # folders
        self._used: queue.SimpleQueue[str] = queue.SimpleQueue()  # folders of the kept listing
        self._asked_s = now_s()  # when a folder was read
        self._doubted: set[str] = set()  # folders that the next run has to list itself
        self._is_unsaved = False  # a folder that differs from the kept listing
        self._save_lock = threading.Lock()  # so that what is older is not written later
        self._is_closed = threading.Event()
        works = [self._list_ahead] * NUM_LISTERS
        works += [self._compare_used] * NUM_COMPARERS if kept is not None else []
        self.threads = [
            threading.Thread(target=work, name=f"storage-list-{number}", daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in self.threads:
            thread.start()

    def folder(self, path: str) -> Folder:
        """Return what is in a folder. Raises OriginError."""
        self._asked_s = now_s()
        return self._listing(path).folder

    def entry(self, path: str) -> Entry:
        """Return the entry of a path, whose size may be UNKNOWN. Raises OriginError: Missing, if there is none."""
        if not path:
            return _ROOT
        if (learnt := self._learnt.get(path)) is not None:
            return learnt
        if path in self._changed:
            raise Changed("it changed since an earlier run listed it; run again")
        folder, _, name = path.rpartition("/")
        listing = self._listing_or_none(folder)
        found = None if listing is None else listing.folder.entries.get(name)
        if found is None:
            if listing is not None:
                raise Missing("it is not in its folder")
            found = self._look(path)
            self.learn(path, found)
        return found

    def has_changed(self, path: str) -> bool:
        """Whether a file is not what the kept listing said."""
        return path in self._changed

    def learn(self, path: str, entry: Entry) -> None:
        """Note what was learnt of a file by reading it."""
        self._learnt[path] = entry

    def _look(self, path: str) -> Entry:
        def ask() -> Entry:
            self._stats.num_requests += 1
            return self.origin.look(path)

        return self._patiently(ask)

    def _listing_or_none(self, folder: str) -> _Listing | None:
        """Return a folder's listing; None where the server does not list it."""
        try:
            return self._listing(folder)
        except Missing:
            if self.origin.has_sizes:
                raise
            return None

    def _listing(self, folder: str) -> _Listing:
        with self._lock:
            listing = self._listings.get(folder)
            is_mine = listing is None
            if listing is None:
                listing = self._listings[folder] = _Listing()
        if is_mine:
            self._list(folder, listing)
            self._look_into(folder, listing)
        listing.has_come.wait()
        if listing.error is not None:
            raise listing.error
        return listing

    def _list(self, folder: str, listing: _Listing) -> None:
        def ask() -> dict[str, Entry]:
            self._stats.num_requests += 1
            return self.origin.list(folder)

        try:
            kept = self._kept.listed(folder) if self._kept else None
            if kept is not None:
                listing.folder = kept
                self._look_again(folder)
            else:
                listing.folder = self._fresh[folder] = Folder(folder, self._patiently(ask))
                self._stats.num_listed += 1
        except OriginError as error:
            listing.error = error
            if not isinstance(error, Missing):  # it may go well the next time
                with self._lock:
                    self._listings.pop(folder, None)
        except Exception as error:  # ours, or a library's: an empty list would be a dataset of none
            listing.error = Again(f"{type(error).__name__}: {error}")
            with self._lock:
                self._listings.pop(folder, None)
        finally:
            listing.has_come.set()

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(ask, Deadline(self._limit_s), self._is_closed.wait, self._count_retry)

    def _count_retry(self, _why: OriginError) -> None:
        self._stats.num_retries += 1

    # -- what earlier runs have kept -------------------------------------------------------------

    def hint(self, path: str) -> Entry | None:
        """Return what an earlier run has learnt of a file, whose size no listing tells."""
        if self._kept is None:
            return None
        folder, _, name = path.rpartition("/")
        if folder not in self._hints:
            self._hints[folder] = self._kept.learnt(folder)
        return self._hints[folder].get(name)

    def _look_again(self, folder: str) -> None:
        # A run that ends too soon to compare it leaves that to the next one.
        self._doubted.add(folder)
        self._used.put(folder)

    def _compare_used(self) -> None:
        while True:
            folder = self._used.get()
            while (left_s := self._asked_s + QUIET_S - now_s()) > 0:
                if self._is_closed.wait(left_s):
                    break
            if self._is_closed.is_set():
                return
            self._compare(folder)
            if self._is_unsaved and self._used.empty():
                self._is_unsaved = False
                # A run that is killed does not come to its end, where it is tried again.
                with contextlib.suppress(Exception):
                    self.save()

    def _say_old(self, folder: str, why: str) -> None:
        if not self._has_said_old:
            self._has_said_old = True
            self._say(
                f"{self.origin.url_of(folder)} could not be listed again ({why}): this run has the list, and "
                "files, of an earlier one"
            )

    def _compare(self, folder: str) -> None:
        """Compare a kept listing with the origin's own."""
        self._stats.num_requests += 1
        try:
            now = self._patiently(lambda: self.origin.list(folder))
        except Missing:
            # It shows no list any more: its files may be there all the same.
            if not self.origin.has_sizes:
                return
            now = {}
        except Exception as error:
            self._doubted.discard(folder)  # it is all that is known
            self._say_old(folder, str(error))
            return
        before = self._listings[folder].folder.entries
        other = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        if not other:
            self._doubted.discard(folder)
            return
        if now:  # else the next run shall find out what has become of it
            self._fresh[folder] = Folder(folder, now)
            self._doubted.discard(folder)
            self._is_unsaved = True
        self._changed |= {f"{folder}/{name}" if folder else name for name in other}
        url = self.origin.url_of(folder)
        self._say(
            f"{url} has changed since an earlier run listed it: {len(other)} names "
            f"({sorted(other)[0]}{', ...' if len(other) > 1 else ''}); this run has the old list, the "
            "next one has the new; reading what was replaced is an error"
        )

    def doubt(self, path: str) -> None:
        """Note that a file is another one than its folder's listing says."""
        self._doubted.add(path.rpartition("/")[0])

    def save(self) -> None:
        """Keep what was found out, for the next run. Raises OSError."""
        if self._kept is None:
            return
        with self._save_lock:
            learnt: dict[str, dict[str, Entry]] = {}
            for path, entry in tuple(self._learnt.items()):
                folder, _, name = path.rpartition("/")
                learnt.setdefault(folder, dict(self._kept.learnt(folder)))[name] = entry
            folders = {path: Folder(path, entries) for path, entries in learnt.items()}
            self._kept.save(dict(self._fresh), folders, frozenset(self._doubted))

    # -- ahead -----------------------------------------------------------------------------------

    def _look_into(self, folder: str, listing: _Listing) -> None:
        """Have a folder's own folders listed: who lists one walks into the next."""
        for name in compress(listing.folder.names, listing.folder.are_folders):
            try:
                self._ahead.put_nowait(f"{folder}/{name}" if folder else name)
            except queue.Full:
                return

    def _list_ahead(self) -> None:
        while not self._is_closed.is_set():
            folder = self._ahead.get()
            with self._lock:
                if self._is_closed.is_set():
                    return
                if folder in self._listings:
                    continue
                listing = self._listings[folder] = _Listing()
            self._list(folder, listing)

    def close(self) -> None:
        """End the threads that list ahead."""
        self._is_closed.set()
        for _ in self.threads:
            self._used.put("")
            with contextlib.suppress(queue.Full):  # then there is enough to wake them all
                self._ahead.put_nowait("")
