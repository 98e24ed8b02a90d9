"""Decoders that are remembered: plain and with the memory on and auditing, by hash, over some epochs."""

import gc
import importlib
import io
import os
from functools import partial

import pytest
from torch.utils.data import DataLoader

from stoker.config import Disk, Settings
from stoker.memory import phases
from stoker.memory.report import remembered
from stoker.memory.store import shelves
from tests.equality import decoding, remembering
from tests.equality.sides import both

EPOCHS = 8
ON, AUDIT = Settings(quiet=True, cache="auto"), Settings(quiet=True, cache="audit")
FORMS = [
    pytest.param(*form, id=f"{form[0].__name__}-{form[1].__name__}") for form in decoding.FORMS
]


@pytest.fixture(autouse=True)
def fresh_shelf(monkeypatch):
    """Each test begins with a shelf of its own; files that are small are worth keeping too."""
    monkeypatch.setattr(shelves, "_shelf", None)
    monkeypatch.setattr(phases, "HIT_S", 1e-6)
    monkeypatch.setattr(phases, "FREE_S", 10.0)
    # Hypothesis times each collection; one that falls into a watched call would count as its own.
    callbacks, gc.callbacks[:] = list(gc.callbacks), []
    yield
    gc.callbacks[:] = callbacks


@pytest.fixture
def files(tmp_path):
    def write(writer):
        try:
            for number in range(decoding.NUM):
                written = tmp_path / str(number)
                writer(written, number)
                os.utime(written, ns=(1, 1))
        except ImportError as error:
            pytest.skip(str(error))
        return tmp_path

    return write


def loader_of(kind, folder, read, **options):
    options = {"batch_size": None, **options}
    return lambda workers: DataLoader(kind(folder, read), num_workers=workers, **options)


epochs = partial(remembering.epochs, num=EPOCHS)


def decoder(name):
    """What the shelf knows of a function: why it is left alone, and the counts; None if nothing."""
    found = [
        (why, counts)
        for place, why, counts in shelves.own_shelf().places().values()
        if place == f"decoder {name}"
    ]
    assert len(found) < 2
    return found[0] if found else None


def num_served(name):
    why, counts = decoder(name)
    assert why == ""
    assert counts.num_differed == 0
    return counts.num_hits - counts.num_checked


# The same calls in both; a worker's datasets differ in how they come to make them.
@pytest.mark.parametrize(
    "kind", [pytest.param(decoding.DrawsFirst, marks=pytest.mark.full), decoding.Stream]
)
@pytest.mark.parametrize(("read", "write", "name"), FORMS)
def test_what_a_decoder_makes_of_a_file_is_remembered(kind, read, write, name, files):
    folder = files(write)
    if name in decoding.LIBRARIES:
        try:
            importlib.import_module(decoding.LIBRARIES[name])  # not in each worker anew
            read(str(next(folder.iterdir())))
        except ImportError as error:  # also of what a library itself needs
            pytest.skip(str(error))
    both(loader_of(kind, folder, read), epochs, settings=ON)
    if name:
        assert num_served(name) > decoding.NUM
    elif decoder(decoding.PICTURES):
        assert decoder(decoding.PICTURES)[1].num_hits == 0


# -- one form, and what may happen to it ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [decoding.DrawsFirst, decoding.Stream])
def test_an_audit_decodes_every_file_again(kind, files):
    both(loader_of(kind, files(decoding.write_jpeg), decoding.opened), epochs, settings=AUDIT)
    why, counts = decoder(decoding.PICTURES)
    assert why == ""
    assert counts.num_hits == counts.num_checked > decoding.NUM
    assert counts.num_differed == 0


@pytest.mark.parametrize("kind", [decoding.DrawsFirst, decoding.Stream])
@pytest.mark.parametrize("workers", [1, 3])
def test_living_workers_remember_decoded_files(kind, workers, files):
    make = loader_of(kind, files(decoding.write_jpeg), decoding.pil_loader, persistent_workers=True)
    both(make, lambda loader: epochs(loader, num=12), workers=workers, settings=ON)
    assert num_served(decoding.PICTURES) > decoding.NUM


def test_samples_that_are_made_several_at_once_remember_decoded_files(files):
    folder = files(decoding.write_jpeg)
    make = loader_of(decoding.Several, folder, decoding.opened, batch_size=4, shuffle=True)
    both(make, epochs, settings=ON)
    assert num_served(decoding.PICTURES) > decoding.NUM
    assert remembering.place_of(decoding.Several)[0] == "makes several samples at once"


@pytest.mark.parametrize("kind", [decoding.DrawsFirst, decoding.Stream])
def test_files_that_are_rewritten_between_epochs_are_decoded_again(kind, files):
    """With the size and the time of change that they had."""
    folder = files(decoding.write_jpeg)

    def run(loader):
        for epoch in range(EPOCHS):
            for number in range(epoch, decoding.NUM, 7):
                rewrite(folder / str(number), number + epoch)
            yield from loader

    def fresh(loader):
        for number in range(decoding.NUM):
            rewrite(folder / str(number), number)
        yield from run(loader)

    both(loader_of(kind, folder, decoding.or_error), fresh, settings=ON)
    assert num_served(decoding.PICTURES) > decoding.NUM


def rewrite(path, number, nbytes=60000):
    """Write other pixels in as many bytes, in place: behind a JPEG's end nothing is read."""
    whole = io.BytesIO()
    decoding.pixels(number).save(whole, "JPEG", quality=90)
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(whole.getvalue().ljust(nbytes, b"\0"))
    assert path.stat().st_size == nbytes
    os.utime(path, ns=(1, 1))


def test_a_dataset_that_is_remembered_itself_keeps_no_files_twice(files):
    make = loader_of(decoding.ThenDraws, files(decoding.write_jpeg), decoding.opened)
    both(make, epochs, settings=ON)
    (place,) = remembered().places
    assert (place.why, place.depth) == ("", "up to the first random step")
    assert place.num_hits > decoding.NUM


@pytest.mark.forks
def test_a_dataset_that_is_cheap_has_no_decoders(files, monkeypatch):
    monkeypatch.setattr(phases, "HIT_S", 1.0)
    make = loader_of(decoding.DrawsFirst, files(decoding.write_jpeg), decoding.opened)
    both(make, lambda loader: epochs(loader, num=3), settings=ON)
    assert decoder(decoding.PICTURES) is None


def test_a_full_shelf_serves_the_files_that_it_holds(files):
    settings = Settings(quiet=True, cache="auto", cache_memory=20 << 18)
    make = loader_of(decoding.Stream, files(decoding.write_jpeg), decoding.opened)
    both(make, epochs, settings=settings)
    _, counts = decoder(decoding.PICTURES)
    assert 0 < counts.num_stored < decoding.NUM
    assert counts.num_hits > counts.num_stored
    assert shelves.own_shelf().used_nbytes() <= 20 << 18


@pytest.mark.forks
@pytest.mark.parametrize("kind", [decoding.DrawsFirst, decoding.Stream])
def test_a_shelf_that_is_damaged_between_epochs_changes_no_batch(kind, files, monkeypatch):
    make = loader_of(kind, files(decoding.write_jpeg), decoding.opened)
    both(make, remembering.damaging(monkeypatch), settings=ON)  # which asserts that there are hits


@pytest.mark.parametrize("kind", [decoding.DrawsFirst, decoding.Stream])
def test_workers_that_are_killed_while_they_keep_files_change_no_batch(kind, files):
    make = loader_of(kind, files(decoding.write_jpeg), decoding.opened)

    def plain(loader):
        for _ in range(6):
            yield from loader

    both(make, remembering.killing, plain_run=plain, settings=ON)
    assert decoder(decoding.PICTURES)[1].num_hits > decoding.NUM


def test_files_that_find_no_room_in_memory_are_on_disk(files, tmp_path_factory):
    disk = Disk(str(tmp_path_factory.mktemp("disk")), 1 << 30)
    settings = Settings(quiet=True, cache_memory=1, cache_disk=disk)
    make = loader_of(decoding.Stream, files(decoding.write_jpeg), decoding.opened)
    both(make, epochs, settings=settings)
    assert num_served(decoding.PICTURES) > decoding.NUM
    assert decoder(decoding.PICTURES)[1].num_stored <= decoding.NUM


def test_another_run_finds_what_was_decoded(files, tmp_path_factory):
    disk = Disk(str(tmp_path_factory.mktemp("disk")), 1 << 30)
    settings = Settings(quiet=True, cache_disk=disk, cache_keep=True)
    folder = files(decoding.write_jpeg)
    make = loader_of(decoding.Stream, folder, decoding.opened)
    both(make, epochs, settings=settings)
    shelves._shelf = None  # another run, which makes 32 of them anew first
    both(make, lambda loader: epochs(loader, num=3), settings=settings)
    assert num_served(decoding.PICTURES) > decoding.NUM
    assert decoder(decoding.PICTURES)[1].is_proven == 1
    for number in range(0, decoding.NUM, 2):
        decoding.write_jpeg(folder / str(number), number + 100)
    shelves._shelf = None
    both(make, lambda loader: epochs(loader, num=2), settings=settings)
    assert decoder(decoding.PICTURES)[1].num_hits > decoding.NUM // 2


def test_the_report_names_the_function(files):
    make = loader_of(decoding.Stream, files(decoding.write_jpeg), decoding.opened)
    both(make, epochs, settings=ON)
    (place,) = remembered().places
    assert (place.place, place.depth) == ("decoder PIL.Image.open", "decoded files")
    assert place.phase == "serving"
    assert place.num_samples == 0
    assert place.num_hits > decoding.NUM


def test_an_error_shows_the_datasets_lines_and_nothing_of_ours(files):
    folder = files(decoding.write_cut_short)

    def run(loader):
        for _ in range(EPOCHS):
            iterator = iter(loader)
            for _ in range(decoding.NUM):
                try:
                    yield next(iterator)
                except OSError as error:
                    lines = str(error).splitlines()  # of its frames two are the loader's
                    assert not [line for line in lines if "stoker/memory" in line]
                    yield lines[0], [line for line in lines if "line " in line][2:]
            iterator._shutdown_workers()

    both(loader_of(decoding.DrawsFirst, folder, decoding.opened), run, settings=ON)
    assert num_served(decoding.PICTURES) > decoding.NUM
