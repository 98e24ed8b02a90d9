"""Puts the parts of the storage process together: origins, cache, look-ahead, mounts, socket."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stoker import speak
from stoker.storage.archives import open_url
from stoker.storage.asking.control import Listener, Message
from stoker.storage.origins import UNKNOWN, Denied, Missing, Origin, OriginError, shown
from stoker.storage.peers.answering import Later, Told
from stoker.storage.peers.homes import Homes
from stoker.storage.peers.joining import Joining, asked_of
from stoker.storage.reading.blocks import Blocks
from stoker.storage.reading.disk import Disk
from stoker.storage.reading.file import File
from stoker.storage.reading.memory import Memory
from stoker.storage.reading.stats import StorageStats
from stoker.storage.serving.ahead import Ahead, SampleFiles
from stoker.storage.serving.kept_listing import KeptListing
from stoker.storage.serving.mounted import Mounted
from stoker.storage.serving.tree import Tree

MAX_SAID = 10  # files that could not be read
SLOW_S = 5.0  # to open a tar; then it is said what takes so long
ANSWERS_WITHIN_S = 20.0  # of an origin, before the script starts


class Refused(Exception):
    """A mount cannot be served, and why."""


class Serving:
    """Raises Refused if an origin does not answer, or a library is missing."""

    def __init__(
        self,
        name: str,
        mounts: Sequence[tuple[str, str, int]],
        memory_nbytes: int,
        disk: tuple[Path, int, bool] | None,
        limit_s: float,
        way: dict[str, Any] | None = None,
    ) -> None:
        """name: of the socket; mounts: path, URL and /dev/fuse of each; way: to the trainer."""
        self.stats = StorageStats()
        self._said: set[str] = set()
        self._why_not = ""  # libfuse does not serve
        homes = Homes(name)
        self._blocks = Blocks(
            Memory(memory_nbytes, self.stats),
            None if disk is None else self._open_disk(*disk),
            self.stats,
            limit_s,
            on_error=self._say_error,
            on_found=self._found,
            homes=homes,
        )
        self._by_origin: dict[int, Mounted] = {}
        self._by_identity: dict[str, Mounted] = {}
        self._mounts: list[tuple[Mounted, int]] = []
        self._opened = SampleFiles()
        for path, url, fd in mounts:
            with _slowness_is_said(url):
                origin = _open(url, way)
            opened = self._blocks.disk
            keeps = opened is not None and opened.keeps and not origin.has_list
            kept = KeptListing(opened.files, url) if keeps and opened is not None else None
            tree = Tree(origin, self.stats, limit_s, kept, speak.say)
            mounted = Mounted(path, origin, tree, self._blocks)
            _check(mounted, min(limit_s, ANSWERS_WITHIN_S))
            self._by_origin[id(origin)] = self._by_identity[origin.identity] = mounted
            self._mounts.append((mounted, fd))
        self._ahead = Ahead([mounted for mounted, _ in self._mounts], self._blocks)
        self._joining = Joining(
            name, list(self._by_identity), homes, self._answer_peer, self.stats.as_json
        )
        if way is not None:
            self._joining.join(way)
        self._listener = Listener(name, self._answer)

    def _open_disk(self, path: Path, nbytes: int, keeps: bool) -> Disk | None:
        try:
            return Disk(path, nbytes, keeps, self.stats, speak.say)
        except OSError as error:
            speak.say(f"no files are kept in {path}: {error.strerror or error}")
            return None

    def start(self, on_end: Callable[[], None]) -> None:
        """Serve, on threads; returns once the kernel is answered. on_end: called if one ends. Raises
        Refused."""
        for mounted, fd in self._mounts:
            is_ready = threading.Event()
            thread = threading.Thread(
                target=self._serve, args=(mounted, fd, is_ready.set, on_end), daemon=True
            )
            thread.start()
            while not is_ready.wait(0.05):
                if not thread.is_alive():
                    raise Refused(f"mount: libfuse cannot serve {mounted.path}{self._why_not}")

    def _serve(
        self, mounted: Mounted, fd: int, on_ready: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        try:
            from stoker.storage.serving.files import serve  # loads libfuse

            serve(mounted, fd, on_ready)
        except Exception as error:  # no libfuse 3, or one that wants something else
            self._why_not = f": {error}; Debian and Ubuntu: apt-get install fuse3"
        on_end()

    def close(self) -> None:
        self._joining.leave()
        self._ahead.close()
        for mounted, _ in self._mounts:
            with contextlib.suppress(Exception):  # what comes below has to be closed all the same
                mounted.tree.save()
        self._blocks.close()
        if self._blocks.disk is not None:
            self._blocks.disk.close()

    def _answer(self, message: Message) -> Message | None:
        if "ahead" in message:
            self._ahead.add(message["by"], message["ahead"])
        elif "next" in message:
            self._ahead.add_next(message["next"])
        elif "samples" in message:
            files = self._opened.files_of(message["of"], message["samples"])
            self._ahead.add(message["by"], files)
        elif "next_samples" in message:
            self._ahead.add_next(self._opened.files_of(message["of"], message["next_samples"]))
        elif "opened" in message:
            self._opened.learn(message["of"], message["opened"])
        elif "begin" in message:
            self._ahead.begin(message["begin"])
        elif "join" in message:
            self._joining.join(message["join"])
            return {}
        elif "stats" in message:
            return self._told()
        return None

    def _answer_peer(
        self, _what: str, asked: dict[str, Any], may_wait: bool
    ) -> Told | Later | None:
        """Return what another machine asks for; Later or None if it has to wait, and may not. Raises
        OriginError."""
        url, path, start, end, known = asked_of(asked)
        mounted = self._by_identity.get(url)
        if mounted is None:
            raise Denied("it is not mounted here")
        piece = mounted.piece_for_peer(path, start, end, known, may_wait)
        if piece is None or isinstance(piece, Later):
            return piece
        return Told(bytes(piece.body), piece.known if known.nbytes == UNKNOWN else None)

    def _told(self) -> dict[str, Any]:
        return {
            **self.stats.as_json(),
            "mounts": [[mounted.path, mounted.origin.url] for mounted, _ in self._mounts],
        }

    def _found(self, file: File) -> None:
        self._by_origin[id(file.origin)].found(file)

    def _say_error(self, url: str, error: Exception) -> None:
        """Say which URL could not be read: the script's own error can name its path only."""
        if isinstance(error, Missing) or url in self._said or len(self._said) >= MAX_SAID:
            return
        self._said.add(url)
        more = "; further ones are not named" if len(self._said) == MAX_SAID else ""
        speak.say(f"{url} cannot be read: {error}{more}")


@contextlib.contextmanager
def _slowness_is_said(url: str) -> Iterator[None]:
    why = "a tar has no index, so it is read through once; a compressed one is downloaded whole"
    slow = threading.Timer(SLOW_S, speak.say, (f"still opening {shown(url)}: {why}",))
    slow.daemon = True
    if url.startswith("tar:"):
        slow.start()
    try:
        yield
    finally:
        slow.cancel()


def _open(url: str, way: dict[str, Any] | None) -> Origin:
    try:
        return open_url(url, way)
    except ImportError as error:
        raise Refused(
            f"mount: {shown(url)} needs a library that is not installed: {error}"
        ) from error
    except OriginError as error:
        if isinstance(error.__cause__, ImportError):
            raise Refused(
                f"mount: {shown(url)} needs a library that is not installed: {error.__cause__}"
            ) from error
        raise Refused(f"mount: {shown(url)} cannot be opened: {error}") from error


def _check(mounted: Mounted, limit_s: float) -> None:
    """Look whether the origin answers. Raises Refused."""
    url, failed = mounted.origin.url, list[OriginError]()

    def look() -> None:
        try:
            mounted.tree.folder("")
        except OriginError as error:
            failed.append(error)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(limit_s)
    if looking.is_alive():
        raise Refused(f"mount: {url} does not answer within {limit_s:.0f} s")
    if failed and isinstance(failed[0], Missing) and not mounted.origin.has_sizes:
        speak.say(f"{url} shows no list ({failed[0]}): files are found there by their names alone")
    elif failed:
        raise Refused(f"mount: {url} cannot be listed: {failed[0]}")
