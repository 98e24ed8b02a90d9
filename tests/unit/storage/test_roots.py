"""Which folders are a dataset's roots, and which never are."""

import os
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import ConcatDataset, Subset

from stoker.storage.asking.roots import Root, is_here, roots_of


class Named:
    def __init__(self, **own):
        vars(self).update(own)

    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise AssertionError


@pytest.fixture
def data(tmp_path):
    for split in ("train", "val"):
        for name in "abc":
            path = tmp_path / "data" / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
    return tmp_path / "data"


def paths(*datasets, never=()):
    return [root.path for root in roots_of(datasets, never)]


def files(folder):
    return [str(each) for each in sorted(folder.iterdir())]


def test_the_folder_of_a_list_of_files_is_a_root(data):
    train = files(data / "train")
    assert paths(Named(imgs=train)) == [str(data / "train")]
    assert paths(Named(samples=[(each, 1) for each in train])) == [str(data / "train")]
    assert paths(Named(items=[{"image": Path(each)} for each in train])) == [str(data / "train")]
    assert paths(Named(files=np.array(train))) == [str(data / "train")]


def test_a_root_attribute_holds_what_lies_in_it(data):
    assert paths(Named(root=str(data), imgs=files(data / "val"))) == [str(data)]
    assert paths(Named(root=data / "train"), Named(root=data / "val")) == [
        str(data / "train"), str(data / "val"),
    ]  # fmt: skip
    assert paths(Named(file=str(data / "train/a"))) == [str(data / "train")]


def test_wrappers_are_looked_into(data):
    inner = Named(imgs=files(data / "train"))
    for dataset in (Subset(inner, [0]), ConcatDataset([inner, inner]), Named(inner=inner)):
        assert paths(dataset) == [str(data / "train")]


def test_a_mapped_file_tells_its_folder(data):
    np.save(data / "train/rows.npy", np.zeros(10))
    rows = np.load(data / "train/rows.npy", mmap_mode="r")
    assert paths(Named(rows=rows)) == [str(data / "train")]


@pytest.mark.parametrize(
    "folder", ["/", "/etc", "/etc/ssl", "/tmp", "/home", "/usr/share", "/proc/self", "/no/such/folder", "~", "~/.."]
)  # fmt: skip
def test_system_folders_and_homes_are_no_roots(folder):
    assert paths(Named(root=str(Path(folder).expanduser()))) == []


def test_secrets_mounts_and_code_are_no_roots(data):
    (data / ".ssh/keys").mkdir(parents=True)
    assert paths(Named(root=str(data / ".ssh/keys"))) == []
    assert paths(Named(root=str(data)), never=[str(data)]) == []
    assert paths(Named(root=str(data)), never=[str(data / "train")]) == []  # a mount lies in it
    assert paths(Named(root=str(data / "val")), never=[str(data / "train")]) == [str(data / "val")]


def test_a_dataset_that_raises_has_none():
    class Odd:
        __dict__ = property(lambda self: 1 / 0)

    class OddList(list):
        def __getitem__(self, index):
            raise RuntimeError

    assert paths(Named(imgs=OddList([1])), 5, None, object()) == []


def test_another_machine_has_a_root_if_its_files_are_the_same(data):
    (root,) = roots_of([Named(imgs=files(data / "train"))])
    assert len(root.samples) == 3 and is_here(root)
    os.utime(data / "train/a", ns=(1, 1))  # as a copy of the same dataset has
    assert is_here(root)
    (data / "train/a").write_text("longer")
    assert not is_here(root)
    assert not is_here(Root("/no/such", [])) and is_here(Root(str(data), []))


def test_attributes_that_answer_with_an_error_are_let_be(data):
    class Attributes(dict):
        def __getattr__(self, name):
            return self[name]

    train = files(data / "train")
    assert paths(Named(options=Attributes(a=1), imgs=train)) == [str(data / "train")]


def test_a_folder_with_secrets_in_it_is_no_root(data):
    (data / ".aws").mkdir()
    assert paths(Named(root=str(data))) == []
    assert paths(Named(root=str(data / "train"))) == [str(data / "train")]
