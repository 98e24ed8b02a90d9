"""Files that a library looks for beside the one that it opens."""

import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate

from stoker.memory.phases import Phase
from stoker.memory.stand_in import Memory
from stoker.memory.store import ShelfAccess, make_shelf
from tests.equality import decoding

NUM = 12
rasterio = pytest.importorskip("rasterio")
# From here on PROJ's database is open, which each file with a CRS asks.
rasterio.CRS.from_epsg(32633)


@pytest.fixture
def tiles(tmp_path, monkeypatch):
    """As if each file had been left alone for long."""
    monkeypatch.setattr("stoker.memory.watch.files._SETTLED_NS", -(1 << 62))
    for number in range(NUM):
        decoding.write_tile(tmp_path / f"{number}.tif", number)
    return sorted(map(str, tmp_path.iterdir()))


class Masks(Dataset):
    """What is valid of each tile; a tile's mask may be a file beside it, which GDAL finds."""

    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        with rasterio.open(self.paths[index]) as file:
            return torch.from_numpy(file.read_masks())


def test_a_mask_that_comes_beside_a_tile_is_seen_of_samples_too(tiles, tmp_path):
    """A dataset whose samples are remembered opens no tile, where it is served."""
    dataset = Masks(tiles)
    desk = Memory(ShelfAccess(make_shelf(1 << 26), 0, b"loader", False), is_only_worker=True)
    place = desk.around(dataset, default_collate)._get.__self__
    while place._phase is not Phase.SERVING:
        assert place._phase is not Phase.OFF, place._tally.known()
        for index in range(NUM):
            assert torch.equal(place.get(index), dataset[index])
    num_hits = place._tally.num_hits
    before = place.get(0)
    assert place._tally.num_hits == num_hits + 1
    masked = shutil.copy(tiles[0], tmp_path / "elsewhere.tiff")
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(masked, "r+") as file:
        file.write_mask(np.zeros((256, 256), bool))
    shutil.move(f"{masked}.msk", f"{tiles[0]}.msk")
    assert torch.equal(place.get(0), dataset[0])
    assert not torch.equal(dataset[0], before)
