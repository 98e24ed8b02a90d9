"""Samples that are remembered on disk, and from run to run: by hash, against torch, in the same test.

Another run is another shelf on the same folder; test_another_process is a real one.
"""

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import config
from stoker.config import Settings
from stoker.kept_files import SLOT_NBYTES, read_slot, slot_of
from stoker.memory import kept as kept_module
from stoker.memory import phases
from stoker.memory.store import DiskWish, shelves
from stoker.memory.store.coding.layout import ALIGN_NBYTES, HEAD, dumps, loads
from stoker.memory.store.disk import Disk
from stoker.memory.store.disk import disk as disk_module
from stoker.memory.watch import lasting
from tests.equality import impure
from tests.equality.remembering import KEPT, epochs, killing, loader_of, place_of, rewrite
from tests.equality.sides import both

MUCH = 1 << 30
NAME = "stoker-remembered-1"


@pytest.fixture(autouse=True)
def fresh_shelf(monkeypatch):
    monkeypatch.setattr(shelves, "_shelf", None)


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "data"
    found.mkdir()
    for k in range(impure.NUM):
        (found / f"{k}.txt").write_text("x" * (k + 1))
    return found


def settings_of(tmp_path, nbytes=MUCH, keep=True, memory=None, cache="auto"):
    disk = config.Disk(str(tmp_path / "disk"), nbytes)
    return Settings(quiet=True, cache=cache, cache_memory=memory, cache_disk=disk, cache_keep=keep)


def another_run():
    shelves._shelf = None


def files(tmp_path, suffix):
    return sorted((tmp_path / "disk" / NAME).glob(f"*{suffix}"))


# -- in one run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [impure.Pure, impure.ThenRandom, impure.OfAFile])
def test_what_finds_no_room_in_memory_is_remembered_on_disk(kind, folder, tmp_path):
    settings = settings_of(tmp_path, keep=False, memory=20 * 256)
    both(loader_of(kind, folder), lambda loader: epochs(loader, 6), settings=settings)
    why, counts = place_of(kind)
    assert why == ""
    assert counts.num_stored >= impure.NUM
    assert counts.num_hits > 2 * impure.NUM
    assert shelves.own_shelf().used_nbytes() <= 20 * 256
    assert files(tmp_path, "") == []  # nothing has a name


def test_the_disk_holds_no_more_than_it_may(folder, tmp_path):
    limit = 10_000
    settings = settings_of(tmp_path, limit, memory=1)
    both(loader_of(impure.Pure, folder), lambda loader: epochs(loader, 6), settings=settings)
    _, counts = place_of(impure.Pure)
    assert 0 < counts.num_stored < impure.NUM
    used = sum(
        path.stat().st_size for path in files(tmp_path, ".values") + files(tmp_path, ".index")
    )
    assert 0 < used <= limit


def test_workers_that_are_killed_while_they_write_change_no_batch(folder, tmp_path):
    make, settings = loader_of(impure.ThenRandom, folder), settings_of(tmp_path, memory=1)
    both(make, killing, plain_run=lambda loader: epochs(loader, 6), settings=settings)
    assert place_of(impure.ThenRandom)[1].num_hits > impure.NUM


@pytest.mark.forks
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_costs_speed_and_is_told(number, folder, tmp_path, monkeypatch):
    def refuse(fd, memory, at):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk_module, "write_at", refuse)
    settings = settings_of(tmp_path, memory=1)
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    why, counts = place_of(impure.Pure)
    assert (why, counts.num_stored) == ("", 0)
    assert os.strerror(number) in shelves.own_shelf().disk.why


def test_a_folder_that_cannot_be_made_costs_speed_and_is_told(folder, tmp_path):
    (tmp_path / "disk").write_text("a file")
    both(loader_of(impure.Pure, folder), epochs, settings=settings_of(tmp_path))
    assert place_of(impure.Pure)[1].num_hits > impure.NUM  # in memory
    assert str(tmp_path / "disk") in shelves.own_shelf().why_no_disk


def test_files_that_the_script_closes_under_us_are_written_to_no_more(folder, tmp_path):
    own = Disk(DiskWish(tmp_path / "disk", MUCH, keeps=False))
    own.open_seats([0])
    fds = own._files[0]
    path = tmp_path / "mine"
    path.write_bytes(b"mine")
    for fd in fds:
        os.close(fd)
    taken: list[int] = []
    while not set(fds) <= set(taken):
        taken.append(os.open(path, os.O_RDWR))
    assert not own.put(0, bytes(16), [memoryview(b"x" * 64)], 1)
    assert "closed" in own.why
    assert path.read_bytes() == b"mine"
    for fd in taken:
        os.close(fd)


# -- from run to run ---------------------------------------------------------------------------------


FEW = (impure.Pure, impure.ThenRandom, impure.OfAFile, impure.ReadsEnvironment)


@pytest.mark.parametrize(
    "kind",
    [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.full) for kind in KEPT],
    ids=lambda kind: kind.__name__,
)
def test_another_run_finds_what_was_kept(kind, folder, tmp_path):
    settings = settings_of(tmp_path)
    both(loader_of(kind, folder), lambda loader: epochs(loader, 8), settings=settings)
    another_run()
    both(loader_of(kind, folder), epochs, settings=settings)
    why, counts = place_of(kind)
    assert why == ""
    assert counts.num_differed == 0
    if kind in impure.OF_ONE_RUN:
        assert counts.num_misses >= impure.NUM  # made anew
    else:
        assert counts.is_proven
        assert counts.num_misses < impure.NUM
        assert counts.num_proven >= phases.NUM_PROVE


def test_another_run_with_audits_makes_every_sample_again(folder, tmp_path):
    both(loader_of(impure.ThenRandom, folder), epochs, settings=settings_of(tmp_path))
    another_run()
    audit = settings_of(tmp_path, cache="audit")
    both(loader_of(impure.ThenRandom, folder), epochs, settings=audit)
    _, counts = place_of(impure.ThenRandom)
    assert counts.num_hits == counts.num_checked > impure.NUM


@pytest.mark.forks
def test_a_dataset_that_differed_in_one_run_is_left_alone_in_the_next(
    folder, tmp_path, monkeypatch
):
    settings = settings_of(tmp_path)
    make = loader_of(impure.Pure, folder)

    def run(loader):
        yield from epochs(loader, 6)
        if shelves.own_shelf() is not None:  # in an epoch whose workers did not meet it first
            assert place_of(impure.Pure)[1].is_noted
            monkeypatch.setattr(phases, "must_check", lambda *_: True)
            monkeypatch.setattr(kept_module, "are_equal", lambda parts, held: False)
        yield from loader

    both(make, run, settings=settings)
    assert place_of(impure.Pure)[1].num_differed > 0
    monkeypatch.undo()
    another_run()
    both(make, epochs, settings=settings)
    why, counts = place_of(impure.Pure)
    assert "earlier run" in why
    assert counts.num_hits == 0


def other_versions(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(lasting, "_packages", lambda: ["torch-3.0.dist-info"])


def other_processor(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(lasting, "_cpu", lambda: ["another"])


def other_codec(folder, tmp_path, monkeypatch):
    """As after an upgrade of FFmpeg by the system: no package of Python's is another."""
    monkeypatch.setattr(lasting, "_file_of", lambda path: (path, 1, 2))


def other_environment(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SCALE_OF_ALL", "3")


def other_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.forks
@pytest.mark.parametrize(
    "change", [other_versions, other_processor, other_codec, other_environment, other_folder]
)
def test_what_depends_on_something_else_is_not_found(change, folder, tmp_path, monkeypatch):
    settings = settings_of(tmp_path)
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    another_run()
    lasting.foundations.cache_clear()
    change(folder, tmp_path, monkeypatch)
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    assert place_of(impure.Pure)[1].is_proven == 0
    lasting.foundations.cache_clear()


def test_what_the_user_answered_for_is_learnt_anew_where_he_does_not(folder, tmp_path):
    settings = settings_of(tmp_path)
    make = loader_of(impure.CallsUnknownC, folder)
    trusting = settings._replace(cache_trust="markupsafe")
    both(make, lambda loader: epochs(loader, 6), settings=trusting)
    assert place_of(impure.CallsUnknownC)[1].is_noted
    another_run()
    both(make, epochs, settings=settings)
    why, counts = place_of(impure.CallsUnknownC)
    assert impure.CallsUnknownC.becomes in why
    assert counts.num_hits == 0


def test_another_terminal_is_the_same(folder, tmp_path, monkeypatch):
    settings = settings_of(tmp_path)
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    another_run()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    assert place_of(impure.Pure)[1].is_proven == 1


def test_a_file_that_was_rewritten_between_runs_is_read_again(folder, tmp_path):
    settings = settings_of(tmp_path)
    both(loader_of(impure.OfAFile, folder), epochs, settings=settings)
    another_run()
    for k in range(0, impure.NUM, 5):
        rewrite(folder / f"{k}.txt", "y", keeps_size=True)
    both(loader_of(impure.OfAFile, folder), epochs, settings=settings)
    assert place_of(impure.OfAFile)[1].num_hits > impure.NUM


# -- what may happen to the files --------------------------------------------------------------------


def cut_short(path, rng):
    os.truncate(path, rng.randrange(path.stat().st_size))


def flip(path, rng):
    data = bytearray(path.read_bytes())
    for _ in range(max(len(data) // 400, 3)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def swap(path, rng):
    data = path.read_bytes()
    half = len(data) // 2 // 64 * 64
    path.write_bytes(data[half:] + data[:half])


def remove(path, rng):
    path.unlink()


def take_place(path, rng):
    """Of what cannot be read as a file, by nobody: root may read what is forbidden."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [cut_short, flip, swap, remove, take_place])
@pytest.mark.parametrize("suffix", [".values", ".index", ".place"])
@pytest.mark.parametrize(
    "kind", [impure.ThenRandom, pytest.param(impure.OfAFile, marks=pytest.mark.full)]
)
def test_files_that_are_harmed_between_runs_change_no_batch(kind, suffix, harm, folder, tmp_path):
    settings, rng = settings_of(tmp_path), random.Random(5)
    both(loader_of(kind, folder), epochs, settings=settings)
    assert files(tmp_path, suffix)
    for path in files(tmp_path, suffix):
        harm(path, rng)
    another_run()
    both(loader_of(kind, folder), epochs, settings=settings)
    why, counts = place_of(kind)
    assert (why, counts.num_differed) == ("", 0)
    assert counts.num_hits > impure.NUM


@pytest.mark.parametrize("harm", [cut_short, flip, remove])
def test_files_that_are_harmed_between_epochs_change_no_batch(harm, folder, tmp_path):
    rng, settings = random.Random(6), settings_of(tmp_path, memory=1)
    both(loader_of(impure.ThenRandom, folder), epochs, settings=settings)
    another_run()

    def run(loader):
        for _ in range(5):
            yield from loader
            if shelves.own_shelf() is not None:
                for path in files(tmp_path, ".values"):
                    if path.stat().st_size:
                        harm(path, rng)

    both(loader_of(impure.ThenRandom, folder), run, settings=settings)
    _, counts = place_of(impure.ThenRandom)
    assert counts.num_differed == 0
    assert counts.num_hits > impure.NUM // 2  # before there was harm


def with_huge_tensors(told):
    if type(told) is tuple and told[:1] in (("T",), ("R",)):
        return (*told[:2], (10**7,), (1,), *told[4:])
    return type(told)(map(with_huge_tensors, told)) if type(told) in (tuple, list) else told


def made_up(index):
    """Have all values of a file say something else of themselves; with checksums, which are no secret."""
    values = index.with_suffix(".values")
    found, slots, made = values.read_bytes(), index.read_bytes(), b""
    index.write_bytes(b"")
    for at in range(0, len(slots), SLOT_NBYTES):
        key, entry = read_slot(slots[at : at + SLOT_NBYTES])
        value = found[entry.offset : entry.offset + entry.nbytes]
        nbytes, num = HEAD.unpack_from(value)
        told = dumps(with_huge_tensors(loads(memoryview(value)[HEAD.size : HEAD.size + nbytes])))
        head = HEAD.pack(len(told), num) + told
        head += bytes(-len(head) % ALIGN_NBYTES)
        value = bytearray(head + value[-(-(HEAD.size + nbytes) // ALIGN_NBYTES) * ALIGN_NBYTES :])
        check = disk_module._checksum(memoryview(value))
        entry = entry._replace(offset=len(made), nbytes=len(value), check=check)
        made += bytes(value)
        with index.open("ab") as file:
            file.write(slot_of(key, entry))
    values.write_bytes(made)


def test_values_that_somebody_has_made_up_change_no_batch(folder, tmp_path):
    settings = settings_of(tmp_path)
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    for index in files(tmp_path, ".index"):
        made_up(index)
    another_run()
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    why, counts = place_of(impure.Pure)
    assert (why, counts.num_differed) == ("", 0)
    assert counts.num_hits > impure.NUM


def test_room_is_made_only_when_every_loader_had_its_turn(tmp_path):
    filler = tmp_path / "disk" / NAME / "0123456789ab-0"
    filler.parent.mkdir(parents=True)
    for suffix in (".values", ".index"):
        filler.with_suffix(suffix).write_bytes(bytes(1000))
    disk = Disk(DiskWish(tmp_path / "disk", 1500, keeps=True))
    assert not disk.has_room(0, 1000)
    disk.make_room(b"train")
    disk.make_room(b"validate")
    assert filler.with_suffix(".values").exists()
    disk.make_room(b"train")
    assert not filler.with_suffix(".values").exists()
    assert disk.has_room(0, 1000)


def test_room_is_made_of_what_nobody_reads(folder, tmp_path):
    settings = settings_of(tmp_path, 60_000, memory=1)
    both(loader_of(impure.Pure, folder), lambda loader: epochs(loader, 6), settings=settings)
    old = files(tmp_path, ".values")
    filler = tmp_path / "disk" / NAME / "0123456789ab-0"
    filler.with_suffix(".values").write_bytes(bytes(60_000))
    filler.with_suffix(".index").write_bytes(b"")
    another_run()
    both(loader_of(impure.ThenRandom, folder), lambda loader: epochs(loader, 6), settings=settings)
    assert not filler.with_suffix(".values").exists()
    assert not set(old) & set(files(tmp_path, ".values"))
    assert place_of(impure.ThenRandom)[1].num_stored > 0


# -- real processes ----------------------------------------------------------------------------------

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    kinds = ("even", "odd")

    def __len__(self):
        return 400

    def __getitem__(self, index):
        value = torch.arange(2000.0) * index
        for _ in range(200):
            value = (value * 1.0001).cos()
        return value if self.kinds[index % 2] in {"even", "odd"} else None

total = 0.0
loader = DataLoader(Squares(), batch_size=8, shuffle=True, num_workers=2)
torch.manual_seed(0)
for epoch in range(int(sys.argv[1])):
    for batch in loader:
        total += float(batch.double().sum())
print(repr(total))
"""


def start(script, tmp_path, report, num_epochs):
    command = [
        sys.executable, "-m", "stoker", "run", "-q", "--cache-disk", f"{tmp_path / 'disk'}:1G",
        "--cache-keep", "--report-json", str(report), "--", sys.executable, str(script),
        str(num_epochs),
    ]  # fmt: skip
    # Hashes of text, and with them the order of sets, are others in each process.
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONHASHSEED"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )


def place_in(report):
    import json

    [place] = json.loads(Path(report).read_text())["cache"]["places"]
    return place


def test_another_process_and_two_at_once(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def run(num_runs, num_epochs):
        reports = [tmp_path / f"{number}.json" for number in range(num_runs)]
        started = [start(script, tmp_path, report, num_epochs) for report in reports]
        told = [process.communicate(timeout=120) for process in started]
        assert all(process.returncode == 0 for process in started), told
        plain = subprocess.run(
            [sys.executable, script, str(num_epochs)], capture_output=True, text=True, check=True
        )
        assert all(out == plain.stdout for out, _ in told)
        return [place_in(report) for report in reports]

    for place in run(2, 4):  # two runs fill one folder
        assert (place["why"], place["num_differed"]) == ("", 0)
    [place] = run(1, 1)
    assert (place["why"], place["num_differed"], place["phase"]) == ("", 0, "serving")
    assert place["num_hits"] > 200  # in the first epoch of a process
    for place in run(2, 2):
        assert place["num_hits"] > 400
