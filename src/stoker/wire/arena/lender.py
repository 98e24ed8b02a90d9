"""The trainer's side of an arena: which of its extents may still be seen here.

Owner: the thread that iterates. Views die on any thread; their deaths go through deques.
"""

from collections import deque
from collections.abc import Collection

from stoker.wire.arena.arena import Arena, Loan
from stoker.wire.arena.circulation import Circulation
from stoker.wire.arena.forked_child import ForkedChild
from stoker.wire.sections import Taken


class Lender:
    """Tracks the extents, sent by one slot's workers, that tensors here still view."""

    def __init__(self, arena: Arena, circulation: Circulation | None = None) -> None:
        self.arena = arena
        self.given: Collection[int] = ()  # offsets, of the frame that is being decoded
        self._circulation = circulation
        self._loans: dict[int, list[Loan]] = {}
        self._died: deque[Loan] = deque()
        self._seen: list[Loan] = []  # dead here, but a forked process may still see them
        self._returned: list[int] = []  # free, but the worker has not been told
        self._returned_nbytes = 0
        self.lent_nbytes = 0

    def lend(self, offset: int, nbytes: int) -> memoryview:
        """Return a view of an extent that the worker sent; it goes back when the view dies."""
        extent = self.arena.extent(offset, nbytes)
        loan = Loan(extent, self._died.append)
        loan.offset, loan.nbytes, loan.children = offset, nbytes, []
        loan.circulates = False
        if self._circulation is not None and offset in self.given:
            loan.circulates = True
            self._circulation.note(offset, nbytes)
        self._loans.setdefault(offset, []).append(loan)
        self.lent_nbytes += nbytes
        return memoryview(extent).cast("B")

    def held_nbytes(self) -> int:
        """Return the bytes of all loans that something still holds."""
        if self._died or self._seen:
            self._look_at_dead()
        return self.lent_nbytes

    def take_returned(self, at_least_nbytes: int = 0) -> list[int]:
        """Return offsets that went back and were not taken yet, once for every time they were lent.

        Returns none of them before they come to `at_least_nbytes`.
        """
        if self._died or self._seen:
            self._look_at_dead()
        if not self._returned or self._returned_nbytes < at_least_nbytes:
            return []
        returned, self._returned, self._returned_nbytes = self._returned, [], 0
        return returned

    def _look_at_dead(self) -> None:
        while self._died:
            self._seen.append(self._died.popleft())
        for loan in self._seen:
            loan.children = [w for w in loan.children if not w.is_gone()]
            if not loan.children:
                self._forget(loan)
                self._return(loan)
        self._seen = [loan for loan in self._seen if loan.children]

    def seen_by(self, child: ForkedChild) -> None:
        """Note that a process was forked: it may see what is lent now until it ends."""
        for loans in self._loans.values():
            for loan in loans:
                if loan() is not None:  # one that died before waits for older forks only
                    loan.children.append(child)

    def lent(self) -> list[Taken]:
        """Return the extents that are lent now, and how often a worker will hear that each is back."""
        return [
            Taken(offset, loans[0].nbytes, sum(not loan.circulates for loan in loans), False)
            for offset, loans in self._loans.items()
        ]

    def will_hear(self) -> bool:
        """Whether the death of each view that lives will be heard of. Not where this was garbage:
        the collector has cleared the weak references that belonged to it, though a finalizer keeps
        it. Source: cpython Modules/gcmodule.c `handle_weakrefs`, 3.11."""
        self._look_at_dead()
        num_dead = sum(loan() is None for loans in self._loans.values() for loan in loans)
        return num_dead <= len(self._seen)

    def _return(self, loan: Loan) -> None:
        if loan.circulates and self._circulation is not None:
            self._circulation.free(loan.offset)
        else:
            self._returned.append(loan.offset)
            self._returned_nbytes += loan.nbytes

    def _forget(self, loan: Loan) -> None:
        self.lent_nbytes -= loan.nbytes
        loans = self._loans[loan.offset]
        loans.remove(loan)
        if not loans:
            del self._loans[loan.offset]
