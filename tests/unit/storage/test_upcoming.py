"""Which files samples have, by a dataset's own list or by what was opened; and sampler order kept."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, RandomSampler, Subset

from stoker.clock import Deadline, now_s
from stoker.storage.asking import upcoming
from stoker.storage.asking.upcoming import BatchFiles, SamplerAhead, files_of, name_of
from stoker.storage.serving.ahead import SampleFiles

MOUNTS = ("/data/",)


class Listed:
    def __init__(self, **own):
        vars(self).update(own)

    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise AssertionError("no sample is made to find its files")


PATHS = ["/data/a", "/data/b", "/data/c"]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"imgs": PATHS}, ["/data/b"]),
        ({"samples": [(path, 1) for path in PATHS]}, ["/data/b"]),
        ({"samples": [(path, 1) for path in PATHS], "imgs": PATHS}, ["/data/b"]),
        ({"files": [Path(path) for path in PATHS]}, ["/data/b"]),
        ({"files": np.array(PATHS)}, ["/data/b"]),
        ({"images": PATHS, "masks": [f"{path}.png" for path in PATHS]}, ["/data/b", "/data/b.png"]),
        ({"items": [{"image": path, "label": f"{path}.nii"} for path in PATHS]}, ["/data/b", "/data/b.nii"]),
        ({"files": ["/data/x/../b"] * 3}, ["/data/b"]),
        ({"inner": Listed(imgs=PATHS), "transform": len}, ["/data/b"]),
    ],
)  # fmt: skip
def test_the_files_of_a_sample_are_those_of_the_datasets_own_list(own, expected):
    assert list(files_of(Listed(**own), MOUNTS)(1)) == expected


@pytest.mark.parametrize(
    "own",
    [{}, {"imgs": ["/elsewhere/a"] * 3}, {"imgs": PATHS[:2]}, {"root": "/data/a"}, {"labels": [1, 2, 3]}],
)  # fmt: skip
def test_a_dataset_without_such_a_list_has_none(own):
    assert files_of(Listed(**own), MOUNTS) is None


def test_wrappers_of_torchs_own_are_seen_through():
    listed = Listed(imgs=PATHS)
    assert files_of(Subset(listed, [2, 0]), MOUNTS)(0) == ["/data/c"]
    both = files_of(ConcatDataset([listed, Subset(listed, [1])]), MOUNTS)
    assert [both(k) for k in range(4)] == [["/data/a"], ["/data/b"], ["/data/c"], ["/data/b"]]


def test_a_dataset_that_raises_is_left_alone():
    class Odd(Listed):
        def __len__(self):
            raise RuntimeError

    assert files_of(Odd(imgs=PATHS), MOUNTS) is None and name_of(Odd()) == ""


def test_datasets_of_other_roots_have_other_names():
    assert name_of(Listed(root="/a")) == name_of(Listed(root="/a"))
    assert len({name_of(Listed(root="/a")), name_of(Listed(root="/b")), name_of(Listed())}) == 3


class Told:
    def __init__(self):
        self.messages = []

    def tell(self, message):
        self.messages.append(message)

    def flush(self):
        pass


@pytest.fixture
def mounts(monkeypatch):
    monkeypatch.setattr(upcoming, "mount_paths", lambda: MOUNTS)


def lists_of(wrap, num=10_000, batch=64):
    torch.manual_seed(7)
    sampler = BatchSampler(RandomSampler(range(num)), batch, drop_last=False)
    found = list(wrap(iter(sampler)))
    return found, torch.get_rng_state()


def test_the_samplers_lists_and_generators_are_what_they_were(mounts):
    told = Told()
    plain, plain_state = lists_of(iter)
    ours, our_state = lists_of(lambda it: SamplerAhead(it, told, Listed(root="/data/x")))
    assert ours == plain and torch.equal(our_state, plain_state)
    told_samples = [at for each in told.messages for at in each.get("samples", ())]
    assert told_samples == [at for each in plain for at in each]


def test_files_are_told_before_their_batch_is_drawn_but_not_all_at_once(mounts):
    class Many(Listed):
        def __len__(self):
            return 10_000

    told = Told()
    many = Many(imgs=[f"/data/{k}" for k in range(10_000)])
    ahead = SamplerAhead(iter([[k] for k in range(10_000)]), told, many)
    assert next(ahead) == [0]
    num = sum(len(each.get("ahead", ())) for each in told.messages)
    assert num + 256 >= upcoming.AHEAD_SAMPLES and num < 5000


def test_an_epoch_that_begins_again_says_who_it_is(mounts):
    told = Told()
    for _ in range(2):
        SamplerAhead(iter([]), told, Listed())
    assert told.messages[0] == told.messages[1] and set(told.messages[0]) == {"begin"}


class Opening:
    """Opens files of its own choice, which no list of it tells."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 4

    def __getitem__(self, index):
        for name in (f"{index}.a", f"{index}.b"):
            with (self.folder / name).open("rb") as opened:
                opened.read()
        return index


def test_what_a_sample_opens_is_learnt_and_found_again(tmp_path, monkeypatch):
    for index in range(4):
        for suffix in "ab":
            (tmp_path / f"{index}.{suffix}").touch()
    monkeypatch.setattr(upcoming, "mount_paths", lambda: (f"{tmp_path}/",))
    told, dataset, opened = Told(), Opening(tmp_path), SampleFiles()
    files = BatchFiles(told, dataset, True)
    for indices in ([2, 0], [3]):
        got = [dataset[index] for index in files.begin(indices)]
        assert got == indices
        files.end()
    (tmp_path / "1.a").open("rb").close()  # between batches: nobody's
    for each in told.messages:
        if "opened" in each:
            opened.learn(each["of"], each["opened"])
    assert opened.files_of(name_of(dataset), [0, 3, 1]) == [
        f"{tmp_path}/{name}" for name in ("0.a", "0.b", "3.a", "3.b")
    ]
    assert opened.files_of("else", [0]) == []


def test_between_samples_it_is_looked_for_other_batches_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(upcoming, "mount_paths", lambda: (f"{tmp_path}/",))
    told, looked = Told(), []
    files = BatchFiles(told, Opening(tmp_path), True, lambda: looked.append(now_s()))
    for index in files.begin([2, 0]):
        if index == 2:
            deadline = Deadline(2 * upcoming.LOOKS_EACH_S)
            while not deadline.is_over():
                pass
    files.end()
    assert len(looked) == 1 and told.messages == []  # nothing was opened


def test_a_look_between_samples_that_fails_is_no_error_of_the_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(upcoming, "mount_paths", lambda: (f"{tmp_path}/",))
    monkeypatch.setattr(upcoming, "LOOKS_EACH_S", 0.0)
    files = BatchFiles(Told(), Opening(tmp_path), True, lambda: 1 // 0)
    assert list(files.begin([1, 0])) == [1, 0]


def test_indices_stay_what_a_dataset_can_tell(mounts):
    files = BatchFiles(Told(), Listed(), True)
    indices = files.begin([1, 2])
    assert indices == [1, 2] and list(indices) == [1, 2] and isinstance(indices, list)
    files.end()
    for other in ((1, 2), torch.tensor([1]), 5, None):
        assert files.begin(other) is other


def test_indices_that_cannot_be_keys_and_other_threads_opens_are_no_errors(tmp_path, monkeypatch):
    (tmp_path / "a").touch()
    monkeypatch.setattr(upcoming, "mount_paths", lambda: (f"{tmp_path}/",))
    told, opened = Told(), SampleFiles()
    files = BatchFiles(told, Listed(root="/data/z"), True)
    for _ in files.begin([[0, 224], [1, 224]]):
        (tmp_path / "a").open("rb").close()
    files.end()
    for each in told.messages:
        if "opened" in each:
            opened.learn(each["of"], each["opened"])
            assert opened.files_of(each["of"], [[1, 224]]) == [str(tmp_path / "a")]
    assert any("opened" in each for each in told.messages)


def test_a_dataset_that_is_given_the_list_itself_is_given_a_list(mounts):
    files = BatchFiles(Told(), Listed(), False)
    assert type(files.begin([1, 2])) is list


def test_nothing_of_a_dataset_within_is_asked():
    class Lazy:
        is_open = False

        def __len__(self):
            self.is_open = True
            return 3

        __getitem__ = __len__

    lazy = Lazy()
    assert files_of(Listed(inner=lazy), MOUNTS) is None and not lazy.is_open


@pytest.mark.parametrize("num", [1, 255, 256, 4095, 4096, 4097, 10_000])
def test_every_sample_of_an_epoch_is_told(mounts, num):
    told = Told()
    indices = [[k, k + 1] for k in range(0, num, 2)]
    assert list(SamplerAhead(iter(indices), told, Listed())) == indices
    samples = [at for each in told.messages for at in each.get("samples", ())]
    assert samples == [at for each in indices for at in each]
    assert max(len(each.get("samples", ())) for each in told.messages) <= 256


def test_a_batch_is_told_before_it_begins(mounts):
    told = Told()
    files = BatchFiles(told, Listed(imgs=PATHS), True)
    files.tell([1, 2])
    files.tell(torch.tensor([1]))  # nothing that can be told
    assert told.messages == [{"next": ["/data/b", "/data/c"]}]
