"""What datasets print on other machines appears where it would under torch, and holds up nobody."""

import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from stoker.remote.net.link import Word
from tests.process.harness import finished, started, under_stoker
from tests.process.job_data import LeavesAChild, Prints
from tests.process.one_trainer import PATIENCE_S, one_trainer, packed

SCRIPT = [sys.executable, "away_prints.py"]
OURS = [*under_stoker("--cluster=processes:2"), *SCRIPT]
BUFFERED = {"PYTHONUNBUFFERED": ""}  # else a line is written in two, and another may come between


def test_a_dataset_that_prints_prints_the_same_lines(tmp_path):
    """Each at least once: a chain that moves may make a batch again."""
    plain = finished(SCRIPT, tmp_path / "plain", environ=BUFFERED)
    with started(OURS, tmp_path / "ours", environ=BUFFERED) as running:
        assert int(running.wait_for("away")) > 20
        ours = running.finish()
    assert (plain.returncode, ours.returncode) == (0, 0), ours.stderr
    assert len(set(plain.stdout.splitlines())) == 300 + 3 + 1
    assert set(ours.stdout.splitlines()) == set(plain.stdout.splitlines())
    assert set(ours.stderr.splitlines()) == set(plain.stderr.splitlines())


@pytest.mark.full
def test_a_stdout_that_nobody_reads_stops_no_epoch(tmp_path):
    """Under torch its workers would wait for whoever reads; here what was missed is told."""
    read_fd, write_fd = os.pipe()
    stuck = [*OURS, "stuck"]
    with (
        started([*SCRIPT, "stuck"], tmp_path / "plain", environ=BUFFERED) as plain,
        started(
            stuck,
            tmp_path / "ours",
            preexec=lambda: os.dup2(write_fd, 1),
            environ=BUFFERED,
        ) as ours,
    ):
        os.close(write_fd)
        assert int(ours.wait_for("away")) > 20
        assert ours.wait_for("total") == plain.wait_for("total")
        printed = b""
        while piece := os.read(read_fd, 1 << 16):
            printed += piece
        assert (plain.finish().returncode, ours.finish().returncode) == (0, 0)
    os.close(read_fd)
    assert b"the end\n" in printed


NUM_LINES = 300_000


@pytest.mark.full
def test_a_trainer_that_does_not_listen_holds_up_no_worker(tmp_path):
    """30 MB are printed; it hears of them what fits, and how many lines were dropped."""
    with pytest.MonkeyPatch.context() as patch, one_trainer(0) as trainer:
        patch.setenv("PYTHONHASHSEED", "1")
        (host,) = trainer.start_hosts(1)
        done = tmp_path / "done"
        trainer.announce(0, packed(Prints(NUM_LINES, str(done))))
        trainer.until_ready(0)
        host.start(1, 0, 0)
        host.task(1, [1])
        trainer.until(lambda: host.words(Word.TEXT, 1))
        wait_without_reading(trainer, done)
        trainer.until(lambda: host.answers(1))

        def num_lines():
            """That came, and that were dropped, as is told now and then."""
            said = b"".join(host.words(Word.TEXT, 2)).decode().splitlines()
            notes = [line.split()[1] for line in said if "were dropped" in line]
            num_seen = b"".join(host.words(Word.TEXT, 1)).count(b"\n")
            return num_seen, sum(int(number.replace(",", "")) for number in notes)

        trainer.until(lambda: sum(num_lines()) == NUM_LINES)
        assert min(num_lines()) > 0
        said = b"".join(host.words(Word.TEXT, 2)).decode()
        assert "on stderr" in said


@pytest.mark.full
def test_what_outlives_a_job_prints_and_ends_beside_another_of_that_number(tmp_path):
    """Its pipes are read to their end, whoever has the number by then."""
    news = tmp_path / "news"
    os.mkfifo(news)
    with pytest.MonkeyPatch.context() as patch, one_trainer(0) as trainer:
        patch.setenv("PYTHONHASHSEED", "1")
        (host,) = trainer.start_hosts(1)
        job = packed(LeavesAChild(str(news)))
        trainer.announce(0, job)
        trainer.until_ready(0)
        num_pipes = pipes_of(host.pid)
        host.start(1, 0, 0)
        host.task(1, [1])
        with news.open("w") as child:  # waits for it
            trainer.until(lambda: host.answers(1))
            trainer.forget(0)
            host.said.clear()
            trainer.announce(0, job)
            trainer.until_ready(0)
            assert pipes_of(host.pid) > num_pipes
            child.write("still here\n")
        trainer.until(lambda: b"still here\n" in host.words(Word.TEXT, 1))
        trainer.until(lambda: pipes_of(host.pid) == num_pipes)
        host.start(2, 0, 0)
        trainer.until(lambda: host.words(Word.STARTED, 2))


def pipes_of(pid):
    """How many it has open."""
    num = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            num += str(fd.readlink()).startswith("pipe:")
    return num


def wait_without_reading(trainer, done):
    """Only says that it lives."""
    end_s = time.monotonic() + PATIENCE_S
    while not done.exists():
        assert time.monotonic() < end_s
        for host in trainer.hosts:
            host.link.send(Word.BEAT)
        time.sleep(0.2)
