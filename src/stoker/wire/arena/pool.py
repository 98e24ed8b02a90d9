"""Keeps arenas whose pages are touched already, for the next loader.

Owner: the trainer; used under the iterator's own calls only.
"""

from collections.abc import Iterator
from typing import NamedTuple
from weakref import ref

from stoker.wire.arena.lender import Lender
from stoker.wire.arena.regions import Regions

MAX_POOLED = 8  # each holds the pages of one loader's batches


class _Spare(NamedTuple):
    regions: Regions
    last_user: ref[object] | None

    def is_of(self, user: object) -> bool:
        return self.last_user is not None and self.last_user() is user


class ArenaPool:
    def __init__(self) -> None:
        self._spare: list[_Spare] = []

    def take(
        self, num: int, region_nbytes: int, can_travel: bool = False, user: object = None
    ) -> Regions | None:
        """Return `num` regions or more, opened; None if the system refuses to map more. user: who
        wants the arena that it had, though a batch of its last epoch still lies there."""
        its = [spare for spare in self._spare if user is not None and spare.is_of(user)]
        for spare in (*its, *self._spare):
            regions, is_its = spare.regions, spare in its
            may_be_lent_nbytes = region_nbytes // 4 if is_its else 0
            if (
                regions.arena.has_descriptor == can_travel
                and len(regions.lenders) >= num
                and regions.asked_nbytes >= region_nbytes
                and regions.lent_nbytes() <= may_be_lent_nbytes
                and self._remove(spare)
            ):
                regions.open(keeps_circulating=is_its)
                return regions
        for num_parts in (1, max(num, 1)):
            try:
                regions = Regions(num, region_nbytes, can_travel, num_parts)
            except (OSError, ValueError, OverflowError):
                continue
            regions.open(keeps_circulating=False)
            return regions
        return None

    def give(self, regions: Regions, user: ref[object] | None = None) -> None:
        """Keep regions whose workers have ended."""
        if not all(lender.will_hear() for lender in regions.lenders):
            return  # it could never be used again
        self._spare.append(_Spare(regions, user))
        del self._spare[:-MAX_POOLED]

    def _remove(self, spare: _Spare) -> bool:
        """Returns whether it was still there: any line may collect garbage, whose finalizers end
        other loaders, and so `give`."""
        try:
            self._spare.remove(spare)
        except ValueError:
            return False
        return True

    def clear(self) -> None:
        self._spare.clear()

    def __iter__(self) -> Iterator[Lender]:
        return iter([lender for spare in self._spare for lender in spare.regions.lenders])
