"""An origin in memory: files by path, a gate that holds answers back, and a log of what it was asked."""

import threading

from stoker.storage.origins import UNKNOWN, Changed, Entry, Missing, Origin, Piece


class FakeOrigin(Origin):
    url = identity = "fake://bucket"

    def __init__(self, files: dict[str, bytes], *, has_sizes: bool = True) -> None:
        self.files, self.has_sizes = files, has_sizes
        self.asked: list[tuple] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails: list[Exception] = []  # raised first, one a request

    def url_of(self, path: str) -> str:
        return f"{self.url}/{path}"

    def list(self, folder: str) -> dict[str, Entry]:
        self._ask("list", folder)
        found = {}
        for path, data in self.files.items():
            if path.startswith(f"{folder}/" if folder else ""):
                name, slash, _ = path[len(folder) :].lstrip("/").partition("/")
                found[name] = Entry(True) if slash else self._entry(data)
        if not found:
            raise Missing("no such folder")
        return found

    def look(self, path: str) -> Entry:
        self._ask("look", path)
        if path not in self.files:
            raise Missing("no such file")
        return self._entry(self.files[path], True)

    def _entry(self, data: bytes, is_looked_at: bool = False) -> Entry:
        knows = self.has_sizes or is_looked_at
        return Entry(False, len(data) if knows else UNKNOWN, 1, str(hash(data)) if knows else "")

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        self._ask("read", path, start, end)
        now = self._entry(self.files[path], True)
        if known.nbytes != UNKNOWN and now != known:
            raise Changed("its tag is another")
        return Piece(now, self.files[path][start:end])

    def _ask(self, *what: object) -> None:
        self.asked.append(what)
        self.gate.wait()
        if self.fails:
            raise self.fails.pop(0)

    def get(self, *_: object) -> None:
        return None

    def got(self, *_: object) -> Piece:
        raise AssertionError
