"""Asks the trainer for those parts of jobs that this host lacks, and holds each once.

Promise: a part that two jobs share comes once, as do those of the next epoch that are the same. A
job that would take more than its share of the memory is refused before any of it travels.
Owner: the host's one thread.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from stoker.local.sizing import available_nbytes, memory_nbytes
from stoker.remote.host.parts import Bundle, Coming
from stoker.remote.net.link import Garbled
from stoker.remote.net.ship import Manifest

# Of the machine's memory, for parts of jobs that have ended: the next epoch's are often the same.
KEPT_FRAC = 1 / 8
# Of the memory that is free, for one job. Its workers need some, and so may others.
JOB_FRAC = 1 / 2


class Needs(NamedTuple):
    """A store's callbacks to its host. ask: the trainer for parts; begin: a job, all of whose parts
    are here; refuse: a job, with the reason."""

    ask: Callable[[int, list[str]], None]
    begin: Callable[[int], None]
    refuse: Callable[[int, str], None]


class PartStore:
    """The jobs that the trainer has announced, and the parts of them that are here."""

    def __init__(self, needs: Needs, num_hosts: int = 1) -> None:
        """num_hosts: of the machine, which unpack the job each."""
        self._needs = needs
        self._num_hosts = num_hosts
        self._jobs: dict[int, Manifest] = {}
        self._begun: set[int] = set()
        self._refused: set[int] = set()
        self._held: list[Bundle] = []  # used last, last
        self._coming: list[Coming] = []

    # -- jobs --------------------------------------------------------------------------------------

    def add(self, number: int, manifest: Manifest) -> None:
        """Add a job that was announced: it begins once all its parts are here."""
        self._jobs[number] = manifest
        self._seek(number)

    def forget(self, number: int) -> None:
        """Drop a job that has ended, and free its parts but for what may be wanted again."""
        if self._jobs.pop(number, None) is None:
            return
        self._begun.discard(number)
        self._refused.discard(number)
        for coming in [coming for coming in self._coming if coming.job == number]:
            coming.drop()  # they were asked for too late: the trainer sends no more of it
            self._coming.remove(coming)
        self._let_go(int(KEPT_FRAC * memory_nbytes()))
        for other in self._jobs:
            self._seek(other)

    def pieces(self, number: int) -> list[memoryview]:
        """Map the parts of a job that has begun, in the manifest's order, as private copies.

        Equal parts have memory of their own each: the job may write to one of them. Raises OSError.
        """
        digests = [part.digest for part in self._jobs[number].parts]
        return [next(b for b in self._held if digest in b).map(digest) for digest in digests]

    def abandon(self) -> None:
        """Close sockets in a forked child."""

    def close(self) -> None:
        """Close all bundles in a forked child that has its pieces, so that it keeps none alive."""
        for bundle in self._held:
            with contextlib.suppress(OSError):
                bundle.close()
        for coming in self._coming:
            coming.abandon()

    def _missing(self, number: int) -> list[str]:
        digests = dict.fromkeys(part.digest for part in self._jobs[number].parts)
        return [digest for digest in digests if not any(digest in b for b in self._held)]

    def _seek(self, number: int) -> None:
        """Take a job's next step: begin it, or ask the trainer for what is missing."""
        if number in self._begun or number in self._refused:
            return
        missing = self._missing(number)
        if missing:
            self._ask(number, missing)
        else:
            self._begin(number)

    def _begin(self, number: int) -> None:
        self._begun.add(number)
        self._use(number)
        self._needs.begin(number)

    def _use(self, number: int) -> None:
        digests = {part.digest for part in self._jobs[number].parts}
        self._held.sort(key=lambda bundle: not bundle.digests.isdisjoint(digests))

    # -- parts from the trainer ----------------------------------------------------------------------

    def _ask(self, number: int, missing: list[str]) -> None:
        wanted = [digest for digest in missing if not any(digest in c for c in self._coming)]
        parts = {part.digest: part for part in self._jobs[number].parts}
        if not wanted:
            return
        why = self._why_too_large(number, sum(parts[digest].nbytes for digest in wanted))
        if why:
            self._refuse(number, why)
            return
        # The stream is another at every epoch: it shall not keep what is not, nor be kept by it.
        stream = self._jobs[number].parts[0].digest
        for bundle in ([d for d in wanted if d == stream], [d for d in wanted if d != stream]):
            if bundle:
                try:
                    self._coming.append(Coming(number, [parts[digest] for digest in bundle]))
                except OSError as error:
                    self._refuse(number, str(error))
                    return
        self._needs.ask(number, wanted)

    def _why_too_large(self, number: int, nbytes: int) -> str:
        """Say why a job is too large; empty if not. Its stream becomes objects at every host."""
        needed = nbytes + self._jobs[number].parts[0].nbytes * self._num_hosts
        if needed > JOB_FRAC * available_nbytes():
            self._let_go(0)
        free = available_nbytes()
        if needed <= JOB_FRAC * free:
            return ""
        return (
            f"it takes {needed / 1e9:.1f} GB there, of which {free / 1e9:.1f} GB are free and half "
            "of that may be a job's: let the dataset read its samples from files in place of "
            "holding them, or give that machine more memory"
        )

    def _refuse(self, number: int, why: str) -> None:
        self._refused.add(number)
        self._needs.refuse(number, why)

    def room(self, digest: str, nbytes: int) -> memoryview:
        """Return the memory for a part that comes. Raises Garbled if it was not asked for."""
        for coming in self._coming:
            if digest in coming and (view := coming.room(digest, nbytes)) is not None:
                return view
        raise Garbled("a part that nobody asked for")

    def took(self, digest: str) -> None:
        """Take a part that has come, and whose checksum was right."""
        coming = next(coming for coming in self._coming if digest in coming)
        coming.took(digest)
        if coming.is_whole:
            self._coming.remove(coming)
            try:
                self._held.append(coming.seal())
            except OSError as error:
                for number in [n for n in self._jobs if digest in self._missing(n)]:
                    self._refuse(number, f"what came of it cannot be kept: {error}")
            for number in [number for number in self._jobs if not self._missing(number)]:
                self._seek(number)

    def _let_go(self, kept_nbytes: int) -> None:
        """Close bundles that no job uses, the longest unused first, all but so many bytes."""
        used = {part.digest for manifest in self._jobs.values() for part in manifest.parts}
        spare = [bundle for bundle in self._held if bundle.digests.isdisjoint(used)]
        while spare and sum(bundle.nbytes for bundle in spare) > kept_nbytes:
            bundle = spare.pop(0)
            self._held.remove(bundle)
            bundle.close()
