"""What a script may ask of stoker's other machines; nothing, and at once, under plain Python."""

import os
from pathlib import Path

PATIENCE_S = 100.0  # less than what a test waits for a line


def tell(line):
    os.write(int(os.environ["TELL_FD"]), f"{line}\n".encode())


def wait_for_hosts(iterator, num_hosts):
    """Until so many hosts have unpacked the loader's job; its chains go there if they can. Returns
    what is wrong."""
    driver = getattr(iterator, "_driver", None)
    if driver is not None and num_hosts:
        away = driver._helpers.away
        return _wait(driver, lambda: away.capacity >= num_hosts or bool(away.cannot))
    return ""


def wait_for_fewer_hosts(iterator, num_hosts):
    """Until no more than so many have it. Returns what is wrong."""
    driver = getattr(iterator, "_driver", None)
    if driver is not None:
        return _wait(driver, lambda: driver._helpers.away.capacity <= num_hosts)
    return ""


def wait_until_told(iterator, num_hits):
    """Until the hosts have told that they remember, with so many hits. Returns what is wrong."""
    from stoker.memory.phases import Counts

    fleet = iterator._driver._helpers._fleet

    def hits():
        return sum(Counts(*told.counts).num_hits for told in fleet.remembered())

    return _wait(iterator._driver, lambda: hits() >= num_hits)


def _wait(driver, is_met):
    from stoker.clock import Deadline

    fleet = driver._helpers._fleet
    fleet.wait(is_met, Deadline(PATIENCE_S))
    driver._hear_helpers()
    if is_met() or fleet.is_gone:
        return ""
    return f"{driver._helpers.away.capacity} after {PATIENCE_S:.0f} s, of {fleet.num_hosts} hosts"


def wait_for_batches(iterator, num, within_s):
    """Of hosts, taken or not; no longer than that, for they may be owed none before more are taken."""
    from stoker.clock import Deadline

    driver, deadline = iterator._driver, Deadline(within_s)
    while driver.stats.num_away < num and not deadline.is_over():
        driver._receive(deadline)


def num_away(iterator):
    """Batches that hosts made; None under plain Python."""
    driver = getattr(iterator, "_driver", None)
    return None if driver is None else driver.stats.num_away


def capacity(iterator):
    """Hosts that have unpacked the loader's job; None under plain Python."""
    driver = getattr(iterator, "_driver", None)
    return None if driver is None else driver._helpers.away.capacity


def is_on_a_host():
    """Whether dataset code runs in a process of a host's. Not by `sys.modules`: code that looks for modules
    there is not sent to hosts."""
    return b"stoker.remote.host" in Path("/proc/self/cmdline").read_bytes()
