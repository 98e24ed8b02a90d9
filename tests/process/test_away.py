"""`--cluster`: whatever dies, wherever, batches are plain torch's and nothing is left behind.

Hosts are real processes that dial the trainer over TCP; a test stops and kills them while they make
batches, at moments that it orders (scripts/away_orders.py), so that every run can be repeated.
"""

import contextlib
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import FAILED, state_of, wait_until_gone
from tests.process.away import (
    AWAY,
    GONE_WITHIN_S,
    HANGS,
    KINDS,
    KNOWN_WITHIN_S,
    LONG,
    NUM_HOSTS,
    REST_WITHIN_S,
    SIZED,
    Trainer,
    chains,
    chains_of,
    children,
    ended,
    hosts,
    kill,
    nothing_is_left_behind,
    one_chain_of_each_job,
    plain,
    receiver,
    trainer,
)
from tests.process.harness import (
    Finished,
    Running,
    finished,
    left_in_shm,
    started,
    under_stoker,
)


class Shared:
    """One trainer and its hosts for several tests; a new one after a test that failed."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._stack = contextlib.ExitStack()
        self.trainer: Trainer | None = None

    def get(self) -> Trainer:
        if self.trainer is None:
            folder = self._factory.mktemp("ours")
            self.trainer = self._stack.enter_context(trainer(folder, AWAY))
        return self.trainer

    def end(self) -> None:
        """By itself, and well."""
        if self.trainer is not None:
            result = self.trainer.end()
            assert (result.returncode, result.left_files()) == (0, []), result.stderr
            assert "Traceback" not in result.stderr
        self.stop()

    def stop(self) -> None:
        self._stack.close()
        self.trainer = None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory)
    yield made
    made.end()


@pytest.fixture
def ours(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Trainer]:
    given = shared.get()
    yield given
    if request.node.stash.get(FAILED, True):
        print(given.running.read("stderr"))
        shared.stop()


# -- faults ----------------------------------------------------------------------------------------

__all__ = ["nothing_is_left_behind", "plain"]

SEED = 1234  # of the victims
NUM_KILLS = 10
HURRY = {"HURRY": "1"}  # for a script under plain Python


def kill_a_chain_of_each_job(running: Running) -> None:
    victims = one_chain_of_each_job(running)
    assert len(victims) == len(KINDS)
    kill(*victims)


def kill_a_host(running: Running) -> None:
    busy = [host for host in hosts(running) if chains_of(host)]
    kill(busy[0])


def kill_all_jobs_of_a_host(running: Running) -> None:
    """The processes that unpacked the jobs and fork their chains."""
    busy = [host for host in hosts(running) if chains_of(host)]
    kill(*children(busy[0]))


def kill_all_hosts(running: Running) -> None:
    kill(*hosts(running))


FAULTS = {
    "a chain of each job": kill_a_chain_of_each_job,
    "all jobs of a host": kill_all_jobs_of_a_host,
    "a host": kill_a_host,
    "all hosts": kill_all_hosts,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_killing_changes_no_batch(plain, ours, fault):
    ours.open(*KINDS)
    ours.to_the_middle(*KINDS)
    assert not ours.order("state nothing").startswith("BARRED")  # any slot makes its batches
    before = hosts(ours.running)
    FAULTS[fault](ours.running)
    assert ours.rest(*KINDS) == {kind: plain[kind] for kind in KINDS}
    if FAULTS[fault] in (kill_a_host, kill_all_hosts):
        assert hosts(ours.running) != before


def stop_a_chain_of_each_job(running: Running) -> list[int]:
    return one_chain_of_each_job(running)


def stop_a_host(running: Running) -> list[int]:
    return [host for host in hosts(running) if chains_of(host)][:1]


@pytest.mark.full
@pytest.mark.parametrize("victims", [stop_a_chain_of_each_job, stop_a_host])
def test_what_is_stopped_is_not_waited_for(plain, ours, victims: Callable[[Running], list[int]]):
    ours.open(*KINDS)
    ours.to_the_middle(*KINDS)
    stopped = victims(ours.running)
    assert stopped
    began_s = time.monotonic()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert ours.rest(*KINDS) == {kind: plain[kind] for kind in KINDS}
        took_s = time.monotonic() - began_s
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    wait_until_gone(frozenset(stopped), GONE_WITHIN_S)
    assert [pid for pid in stopped if state_of(pid) not in ("", "Z")] == []
    ours.open("draws")  # and all hosts serve again
    assert ours.rest("draws") == {"draws": plain["draws"]}
    assert took_s < KNOWN_WITHIN_S + REST_WITHIN_S


@pytest.mark.full
@pytest.mark.parametrize("kind", ["draws", "nothing"])
def test_a_host_that_comes_back_is_used_in_the_same_epoch(plain, ours, kind):
    ours.open(kind)
    ours.to_the_middle(kind)
    before = hosts(ours.running)
    kill_a_host(ours.running)
    ours.order(f"take {kind} 8")
    ours.order(f"hosts {kind} {NUM_HOSTS}")
    ours.order(f"take {kind} 16")
    (new,) = set(hosts(ours.running)) - set(before)
    others = set(hosts(ours.running)) - {new}
    assert chains_of(new) or all(len(chains_of(host)) <= 1 for host in others)
    assert ours.rest(kind) == {kind: plain[kind]}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["dies", "dies-free"])
def test_what_dies_on_every_host_goes_on_here(plain, ours, kind):
    ours.open(kind)
    assert ours.rest(kind) == {kind: plain[kind]}


@pytest.mark.full
def test_kills_by_a_seed(plain, ours):
    """One random victim every few batches: a chain on a host, or a host."""
    rng = random.Random(SEED)
    ours.open(*LONG)
    ours.to_the_middle(*LONG)
    for _ in range(NUM_KILLS):
        ours.order(f"take {LONG[0]} {rng.randint(12, 20)}")
        ours.order(f"take {LONG[1]} {rng.randint(2, 4)}")
        victims = [*hosts(ours.running), *chains(ours.running)]
        kill(rng.choice(victims))
    phase, num_away, num_lost, *_ = ours.order(f"state {LONG[0]}").split()
    assert (phase, int(num_away) > 20, int(num_lost) > 1) == ("BARRED", True, True)
    assert ours.rest(*LONG) == {name: plain[name] for name in LONG}


@pytest.mark.full
@pytest.mark.parametrize("kind", HANGS)
def test_a_batch_that_does_not_come_is_asked_of_a_second_worker(plain, tmp_path, kind):
    """The first one waits for ever, and is ended."""
    with trainer(tmp_path, AWAY) as one:
        one.open(kind)
        one.order(f"take {kind} 40")
        one.order(f"until_away {kind} 20")
        one.order(f"hang {kind}")
        assert one.order(f"rest {kind}") == plain[kind]
        assert (tmp_path / "home" / "hung").exists()
        *_, num_hedged = one.order(f"state {kind}").split()
        assert int(num_hedged) >= 1
        assert one.end().returncode == 0


@pytest.mark.full
@pytest.mark.parametrize("kind", HANGS)
def test_no_second_worker_is_asked_where_none_shall_be(plain, tmp_path, kind):
    with trainer(tmp_path, [*AWAY[:-1], "--no-hedge", AWAY[-1]]) as one:
        one.open(kind)
        one.order(f"take {kind} 40")
        one.order(f"until_away {kind} 20")
        one.order(f"hang {kind}")
        one.running.say(f"rest {kind}")
        (tmp_path / "home" / "go").write_bytes(b"")  # waits for who reads it
        assert one.running.wait_for(f"rest {kind}") == plain[kind]
        *_, num_hedged = one.order(f"state {kind}").split()
        assert num_hedged == "0"
        assert one.end().returncode == 0


def test_a_machine_of_many_cpus_has_hosts_that_end_together(plain, tmp_path):
    with trainer(tmp_path, under_stoker("--cluster=processes:1x12")) as one:
        one.open("draws", "nothing", num_hosts=12)
        one.to_the_middle("draws", "nothing")
        (leader,) = hosts(one.running)
        (follower,) = (pid for pid in children(leader) if is_host(pid))
        kill(follower)
        assert one.rest("draws", "nothing") == {kind: plain[kind] for kind in ("draws", "nothing")}
        wait_until_gone(frozenset({leader, follower}), GONE_WITHIN_S)
        assert one.end().returncode == 0


def is_host(pid: int) -> bool:
    """Whether a child of a host is one too: the others have replaced their stdin."""
    return str(Path(f"/proc/{pid}/fd/0").readlink()) != os.devnull


@pytest.mark.full
@pytest.mark.parametrize("cluster", ["processes:8", "processes:2x4"])
def test_there_are_as_many_workers_as_the_loop_needs(plain, tmp_path, cluster):
    """More at once for a loop that waits, fewer after a while for one that does not."""
    flags = ["--workers=1:4", "--price-worker=36", "--price-trainer=3.6", f"--cluster={cluster}"]
    with trainer(tmp_path, under_stoker(*flags, quiet=False)) as one:
        one.open(SIZED, num_hosts=1)
        assert len(hosts(one.running)) == 1
        one.order(f"pace {SIZED} 4 1")
        assert len(hosts(one.running)) == (1 if "x" in cluster else 4)
        one.order(f"pace {SIZED} 3 200")
        assert one.order(f"rest {SIZED}") == plain[SIZED]
        *_, num_lost, _, _ = one.order(f"state {SIZED}").split()
        assert num_lost == "0"
        result = one.end()
    assert result.returncode == 0
    assert "is lost" not in result.stderr
    told = re.search(
        r"other machines: ([\d.]+) CPU-hours, workers cost ([\d.]+), this machine cost ([\d.]+)",
        result.stderr,
    )
    assert told is not None, result.stderr
    hours, workers, here = map(float, told.groups())
    assert hours > 0.015 and abs(workers - 36 * hours) < 0.5 and here > 0.03


@pytest.mark.full
def test_a_stopped_host_does_not_outlive_the_trainer(plain, tmp_path):
    with trainer(tmp_path, AWAY) as one:
        one.open("draws")
        one.to_the_middle("draws")
        (stopped,) = stop_a_host(one.running)
        os.kill(stopped, signal.SIGSTOP)
        one.running.signal(signal.SIGKILL)
        assert ended(one.running).returncode == -signal.SIGKILL


@pytest.mark.few(1)
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_an_epoch_outlives_the_receiver(plain, shared, ours, signum):
    """And leaves nothing. Whatever is opened later is served by this machine alone."""
    ours.open(*KINDS)
    ours.to_the_middle(*KINDS)
    everyone = frozenset([*hosts(ours.running), *chains(ours.running)])
    os.kill(receiver(ours.running), signum)
    assert ours.rest(*KINDS) == {kind: plain[kind] for kind in KINDS}
    wait_until_gone(everyone, GONE_WITHIN_S)
    assert [pid for pid in everyone if state_of(pid) not in ("", "Z")] == []
    ours.open("draws", num_hosts=0)
    assert ours.rest("draws") == {"draws": plain["draws"]}
    shared.end()  # it is of no use to another test


# -- ends --------------------------------------------------------------------------------------------

# end -> (argument of the script, what to send, to the group?, exit code); of those that end in
# silence plain Python is not asked
ENDS = {
    "success": ("end", None, False, 0),
    "exception": ("raise", None, False, 1),
    "sys.exit": ("sys.exit", None, False, 3),
    "Ctrl-C": ("wait", signal.SIGINT, True, -signal.SIGINT),
    "SIGTERM": ("next", signal.SIGTERM, False, -signal.SIGTERM),
    "kill -9": ("next", signal.SIGKILL, False, -signal.SIGKILL),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("end", ENDS)
def test_every_end_is_as_plain_and_leaves_nothing(tmp_path, end):
    argument, number, group, returncode = ENDS[end]
    command = [sys.executable, "away_ends.py", argument]
    before = left_in_shm()
    with started([*under_stoker("--cluster=processes:1"), *command], tmp_path, stdin=None) as ours:
        assert int(ours.wait_for("in the loop")) >= 8
        assert len(hosts(ours)) == 1
        assert chains(ours) != []
        result = go_on(ours, number, group)
    assert result.returncode == returncode, result.stderr
    assert result.left_files() == []
    assert left_in_shm() == before
    said: tuple[str, list[str]] = "", []
    if argument != "next":
        with started(command, tmp_path / "plain", environ=HURRY, stdin=None) as plain:
            expected = go_on(plain, number, group)
        assert expected.returncode == returncode
        said = outcome(expected)
    assert outcome(result) == said


def outcome(result: Finished) -> tuple[str, list[str]]:
    """What it printed. Of a traceback the last line: where a signal meets it is chance."""
    return result.stdout, result.stderr.splitlines()[-1:]


def go_on(running: Running, number: int | None, group: bool) -> Finished:
    running.say("go on")
    running.wait_for("goes on")
    if number is not None:
        running.signal(number, group=group)
    return ended(running)


# -- loaders -----------------------------------------------------------------------------------------

SCENARIOS = [
    "persistent", "left in the middle", "two in turn", "dropped", "prefetch 1", "prefetch 8",
    "out of order", "timeout kept", "timeout passed", "dicts", "tuples", "strings", "worker_init_fn",
    "ValueError", "its own error",
]  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[str]]]:
    """What every scenario printed under plain Python and under stoker; then, who made batches."""
    folder = tmp_path_factory.mktemp("loaders")
    command = [sys.executable, "away_loaders.py"]
    prefix = under_stoker("--cluster=processes:2")
    theirs = started(command, folder / "plain", environ=HURRY)
    with theirs as plain, started([*prefix, *command], folder / "ours") as ours:
        results = [ended(ours), ended(plain)]
        while ours._hear(1.0):  # until nobody holds the pipe
            continue
        away = dict(x.removeprefix("away ").split(": ") for x in ours.heard if "away" in x)
    assert [result.returncode for result in results] == [0, 0], results[0].stderr
    assert results[0].left_files() == []
    return [by_scenario(results[1].stdout), by_scenario(results[0].stdout), away]


def by_scenario(printed: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in printed.splitlines():
        scenario, _, rest = line.partition(": ")
        found.setdefault(scenario, []).append(rest)
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_loader_cannot_tell(both, scenario):
    plain, ours, away = both
    assert ours[scenario] == plain[scenario]
    assert away[scenario] not in ("0", "None")


@pytest.mark.full  # as long as it takes until machines have come
def test_workers_of_forkserver_have_help_for_what_the_script_itself_defines(tmp_path):
    command, report = (
        [sys.executable, "away_started.py"],
        f"--report-json={tmp_path / 'report.json'}",
    )
    plain = finished(command, tmp_path / "plain")
    flags = under_stoker(report, "--cluster=processes:2", "--cache=off")
    ours = finished([*flags, *command], tmp_path)
    assert (ours.returncode, ours.stdout, ours.leftovers) == (0, plain.stdout, {}), ours.stderr
    assert ours.report["loaders"][0]["num_away"] > 0


def test_a_file_that_only_the_trainer_sees(both):
    """Arrives as what it is, with the traceback of the worker that looked for it."""
    plain, ours, _ = both
    assert plain["its file"] == ["48"]
    text = "\n".join(ours["its file"])
    assert text.startswith(
        "FileNotFoundError Caught FileNotFoundError in DataLoader worker process"
    )
    assert "away_loaders.py" in text
    assert "in __getitem__" in text
    assert "/proc/self/fd/200" in text
