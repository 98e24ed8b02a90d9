"""MONAI's datasets under stoker: four epochs, equal to torch's to the bit, and what becomes of each.

Skipped where monai or nibabel is not installed.
"""

import numpy as np
import pytest
import torch

from stoker.config import Settings
from stoker.memory.store import shelves
from tests.equality.sides import both

monai = pytest.importorskip("monai")
nibabel = pytest.importorskip("nibabel")

from monai import data, transforms  # noqa: E402

NUM, EPOCHS = 16, 10
ON = Settings(quiet=True, cache="auto")
pytestmark = [
    # It writes addresses of its transforms into the data: those of workers that are not forked are others
    # in each epoch, and nothing is kept. And each of torch's workers would import it, for 6 s.
    pytest.mark.forks,
    pytest.mark.filterwarnings("ignore"),  # of MONAI's own, about its options
]


@pytest.fixture(autouse=True)
def fresh_shelf(monkeypatch):
    monkeypatch.setattr(shelves, "_shelf", None)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("volumes")
    rng = np.random.default_rng(5)
    for k in range(NUM):
        values = rng.normal(size=(28, 26, 24)).astype("float32")
        image = nibabel.Nifti1Image(values, np.diag([-1.2, 1.1, 1.0, 1.0]))
        nibabel.save(image, folder / f"{k:02}.nii.gz")
    return [{"image": str(path), "label": k} for k, path in enumerate(sorted(folder.iterdir()))]


def fixed():
    return [
        transforms.LoadImaged(keys=["image"]),
        transforms.EnsureChannelFirstd(keys=["image"]),
        transforms.Orientationd(keys=["image"], axcodes="RAS", labels=None),
        transforms.Spacingd(keys=["image"], pixdim=(1.0, 1.0, 1.0)),
        transforms.ScaleIntensityRanged(
            keys=["image"], a_min=-3, a_max=3, b_min=0, b_max=1, clip=True
        ),
    ]


def drawing():
    return [
        transforms.RandSpatialCropd(keys=["image"], roi_size=(16, 16, 16), random_size=False),
        transforms.RandFlipd(keys=["image"], prob=0.5, spatial_axis=0),
        transforms.RandGaussianNoised(keys=["image"], prob=0.5),
    ]


class Plain(torch.utils.data.Dataset):
    """A script's own dataset, of MONAI's transforms without a Compose."""

    def __init__(self, items):
        self.items = items
        self.load = transforms.LoadImage(image_only=True, ensure_channel_first=True)
        self.flip = transforms.RandFlip(prob=0.5, spatial_axis=0)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image = self.load(self.items[i]["image"])
        return self.flip(image)


def _without_addresses(told):
    """What MONAI tells of the transforms that were applied; their addresses are this side's."""
    if isinstance(told, dict):
        return {str(k): _without_addresses(v) for k, v in told.items() if k != "id"}
    if isinstance(told, (list, tuple)):
        return [_without_addresses(each) for each in told]
    return str(told)


def seen(batches):
    """What a batch holds, as plain values: with what its images tell of themselves."""
    for batch in batches:
        image = batch["image"] if isinstance(batch, dict) else batch
        told = []
        if isinstance(image, data.MetaTensor):
            told = [image.affine, _without_addresses(image.applied_operations)]
            told += [str(sorted(map(str, image.meta))), type(image).__name__]
        yield torch.as_tensor(image).as_subclass(torch.Tensor), told


def epochs(loader):
    for _ in range(EPOCHS):
        yield from seen(loader)


def make(dataset, kind=data.DataLoader):
    """Return a function that makes the loader anew. MONAI's seeds the transforms in each worker."""
    return lambda workers: kind(dataset(), batch_size=2, shuffle=True, num_workers=workers)


def counts():
    """Of the dataset, not of what decodes its files."""
    places = shelves.own_shelf().places().values()
    ((why, found),) = [each[1:] for each in places if not each[0].startswith("decoder ")]
    return why, found


def test_a_dataset_is_kept_up_to_its_first_random_transform(files):
    both(make(lambda: data.Dataset(files, transforms.Compose(fixed() + drawing()))), epochs,
         settings=ON)  # fmt: skip
    why, found = counts()
    assert why == ""
    assert found.num_hits > NUM
    assert found.made_nbytes > found.num_made * 28 * 26 * 24 * 4  # the volume, in float32


def test_whole_samples_are_kept_where_nothing_is_random(files):
    both(make(lambda: data.Dataset(files, transforms.Compose(fixed()))), epochs, settings=ON)
    why, found = counts()
    assert why == ""
    assert found.num_hits > NUM


def test_transforms_of_a_scripts_own_dataset_draw_from_what_all_of_them_share(files):
    both(make(lambda: Plain(files), torch.utils.data.DataLoader), epochs, settings=ON)
    why, found = counts()
    assert why == ""
    assert found.num_hits > NUM


def test_many_parts_of_one_volume(files):
    def dataset():
        several = transforms.RandSpatialCropSamplesd(
            keys=["image"], roi_size=(16, 16, 16), num_samples=2, random_size=False
        )
        return data.Dataset(files, transforms.Compose([*fixed(), several, *drawing()[1:]]))

    both(make(dataset), epochs, settings=ON)
    assert counts()[1].num_hits > NUM


def test_a_compose_that_is_lazy_is_left_whole(files):
    def dataset():
        compose = transforms.Compose(fixed() + drawing(), lazy=True)
        return data.Dataset(files, compose)

    both(make(dataset), epochs, settings=ON)
    assert counts()[1].made_nbytes < NUM * 1000  # what its transforms make is not kept


@pytest.mark.parametrize("kind", ["CacheDataset", "PersistentDataset"])
def test_datasets_that_keep_samples_themselves_stay_right(kind, files, tmp_path):
    folders = map(tmp_path.joinpath, "ab")  # one for each side

    def dataset():
        compose = transforms.Compose(fixed() + drawing())
        if kind == "PersistentDataset":
            return data.PersistentDataset(files, compose, cache_dir=next(folders))
        return data.CacheDataset(files, compose, cache_rate=0.5, progress=False)

    both(make(dataset), epochs, settings=ON)
    assert counts()[1].num_differed == 0


def test_a_new_dataset_in_every_epoch_has_its_own_transforms_addresses(files):
    """An image tells the addresses of the transforms that it went through."""

    def run(loader):
        for _ in range(4):
            items = data.Dataset(files, transforms.Compose(fixed()))
            again = data.DataLoader(items, batch_size=2, num_workers=loader.num_workers)
            known = {id(each) for each in items.transform.transforms}
            known |= {id(items.transform.transforms[2].ornt_transform)}
            known |= {id(items.transform.transforms[3].spacing_transform.sp_resample)}
            for batch in again:
                ids = {each["id"] for one in batch["image"].applied_operations for each in one}
                yield ids <= known

    plain, _ = both(make(lambda: data.Dataset(files, None)), run, settings=ON)
    assert len(set(plain.digests)) == 1
