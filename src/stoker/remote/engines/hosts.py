"""Decides which CPUs an engine holds, which it gives back, and when it restarts a host.

Pure: standard library only; times are arguments.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

AGAIN_S = 0.2  # between a host's end and its next start; doubles while none lives for SETTLED_S
AGAIN_AT_MOST_S = 30.0
SETTLED_S = 10.0
KILLED_SETTLED_S = 0.5  # what kills it from outside is no fault of its start
UNREACHABLE = 69  # a host's exit code: nobody answers where it was told to dial


# One host's thread passes on what nine workers make that normalise photographs.
# Measured: benchmarks/relay.py
CPUS_A_HOST = 8


def num_hosts(num_cpus: int) -> int:
    """Return how many hosts a machine of so many CPUs has."""
    return max(1, -(-num_cpus // CPUS_A_HOST))


def host_name(machine: str, number: int) -> str:
    """Return the name of one of a machine's hosts. machine: the name that the engine gave."""
    return f"{machine}.{number}" if number else machine


def cpus_of_host(name: str, num_cpus: Mapping[str, int]) -> int:
    """Return a host's share of its machine's CPUs. num_cpus: by the name that the engine gave."""
    machine, _, number = name.partition(".")
    rest = num_cpus.get(machine, 1) - CPUS_A_HOST * int(number or 0)
    return min(CPUS_A_HOST, max(0, rest))


@dataclass(slots=True)
class Backoff:
    """Backoff between one host's starts: one that ends at once is started ever less often."""

    _next_s: float = AGAIN_S

    def ended(self, lived_s: float, was_killed: bool = False) -> float:
        """Return seconds until the next start. was_killed: by a signal, or with its machine."""
        if lived_s >= (KILLED_SETTLED_S if was_killed else SETTLED_S):
            self._next_s = AGAIN_S
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, AGAIN_AT_MOST_S)
        return wait_s


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the number of CPUs, by the setting `workers`. most=None: all that there are."""

    least: int
    most: int | None

    @classmethod
    def of(cls, workers: str | None) -> "Bounds":
        """Parse the setting `workers`: None, `N` or `MIN:MAX`."""
        if workers is None:
            return cls(0, None)
        least, _, most = workers.rpartition(":")
        return cls(int(least or most), int(most))

    @property
    def first(self) -> int | None:
        """CPUs until the trainer has said how many it wants; None: all that there are."""
        return None if self.most is None else max(1, self.least)

    def clamp(self, num_wanted: int) -> int | None:
        """Return the CPUs to have if so many are wanted: only `MIN:MAX` follows that."""
        return None if self.most is None else max(self.least, min(num_wanted, self.most))


def to_give_back(node_of: Mapping[int, str | None], num_cpus: int) -> list[int]:
    """Choose the CPUs to give back so that num_cpus are left, in this order.

    First those that no node has room for yet, then whole nodes, the one with the fewest first, as
    an autoscaler takes back only nodes that are idle; of alike ones the newer.
    node_of: by number, the newer the larger; None: it has no node yet.
    """
    num_on = Counter(node for node in node_of.values() if node is not None)
    newest = {node: max(n for n, at in node_of.items() if at == node) for node in num_on}

    def rank(number: int) -> tuple[int, int, int]:
        node = node_of[number]
        return (0, 0, -number) if node is None else (num_on[node], -newest[node], -number)

    return sorted(node_of, key=rank)[: max(0, len(node_of) - num_cpus)]


def missing(
    cpus: Mapping[str, int], node_of: Mapping[int, str | None], num_cpus: int | None
) -> list[str | None]:
    """List the CPUs to ask for, each as its node; None: wherever there is room, now or later.

    num_cpus=None: one for every CPU of each node.
    """
    if num_cpus is not None:
        return [None] * (num_cpus - len(node_of))
    running = Counter(node_of.values())
    return [node for node in sorted(cpus) for _ in range(cpus[node] - running[node])]


def beyond(cpus: Mapping[str, int], node_of: Mapping[int, str | None]) -> list[int]:
    """List the CPUs to give back on each node that has more than it may, the newest first."""
    over = []
    for node in sorted(cpus):
        numbers = sorted((n for n, at in node_of.items() if at == node), reverse=True)
        over += numbers[: max(0, len(numbers) - cpus[node])]
    return over


@dataclass(frozen=True, slots=True)
class Claim:
    """Says what a run claims of its cluster. num_wanted: CPUs; None: every one that there is;
    num_running: CPUs that it has; barred: ids of nodes that it does not use: its trainer's own."""

    num_wanted: int | None
    num_running: int
    barred: tuple[str, ...] = ()


def shares(cpus: Mapping[str, int], claims: Mapping[str, Claim]) -> dict[str, Counter[str]]:
    """Divide the CPUs among runs: for each, how many of each node. All runs compute the same.

    Each CPU goes to the run that has fewest and wants more: a run has fewer than another only if it
    wants no more, or may not use what is left.
    cpus: by id of the node.
    """
    given: dict[str, Counter[str]] = {run: Counter() for run in sorted(claims)}
    for node in sorted(cpus):
        for _ in range(cpus[node]):
            wanting = [
                run
                for run, has in given.items()
                if node not in claims[run].barred
                and (claims[run].num_wanted is None or has.total() < (claims[run].num_wanted or 0))
            ]
            if wanting:
                given[min(wanting, key=lambda run: given[run].total())][node] += 1
    return given


def cpus_of(run: str, cpus: Mapping[str, int], claims: Mapping[str, Claim]) -> Mapping[str, int]:
    """Return the CPUs that a run may use now, by node: all, but no more than its share while
    another has fewer than its own share, or if the run wants all that there are."""
    given = shares(cpus, claims)
    others = [other for other in claims if other != run]
    is_crowded = any(claims[other].num_running < given[other].total() for other in others)
    if others and (is_crowded or claims[run].num_wanted is None):
        return {node: given[run][node] for node in cpus}
    return cpus
