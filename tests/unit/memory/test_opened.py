"""What is read from an object that was opened before depends on what that was opened by."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate

from stoker.memory.decoders.libraries import opened
from stoker.memory.phases import Phase
from stoker.memory.stand_in import Memory
from stoker.memory.store import ShelfAccess, make_shelf
from tests.equality import decoding
from tests.unit.memory.serving import alone, served

NUM = 12
rasterio = pytest.importorskip("rasterio")
laspy = pytest.importorskip("laspy")
pytest.importorskip("lazrs")


@pytest.fixture
def memory(monkeypatch):
    yield from alone(monkeypatch)


@pytest.fixture(autouse=True)
def all_is_settled(monkeypatch):
    """As if each file had been left alone for long."""
    monkeypatch.setattr("stoker.memory.watch.files._SETTLED_NS", -(1 << 62))


def written(folder, write, ending):
    for number in range(NUM):
        write(folder / f"{number}.{ending}", number)
    return sorted(map(str, folder.iterdir()))


@pytest.fixture
def tiles(tmp_path):
    return written(tmp_path, decoding.write_tile, "tif")


def whole(path):
    with rasterio.open(path) as file:
        return file.read()


def by_itself(path):
    """Outside of `during` nothing is served."""
    return whole(path)


def num_hits(memory, name="rasterio"):
    decoder = memory._decoders[name]
    decoder._tally.close()
    return decoder._tally.counts.num_hits


def is_left_alone(memory, read):
    """Whether a call is no hit, once tiles are served."""
    before = num_hits(memory)
    value = memory.during(read)
    assert num_hits(memory) == before
    return value


def test_tiles_are_served(memory, tiles):
    expected = {path: by_itself(path) for path in tiles}
    served(memory, whole, tiles, "rasterio")
    before = num_hits(memory)
    for path in tiles:
        assert np.array_equal(memory.during(whole, path), expected[path])
    assert num_hits(memory) == before + NUM


def test_a_file_that_is_replaced_under_an_open_dataset(memory, tiles):
    served(memory, whole, tiles, "rasterio")

    def read():
        with rasterio.open(tiles[0]) as file:
            Path(tiles[1]).replace(tiles[0])
            return file.read()

    old, new = by_itself(tiles[0]), by_itself(tiles[1])
    assert np.array_equal(is_left_alone(memory, read), old)
    assert np.array_equal(memory.during(whole, tiles[0]), new)


def test_a_dataset_that_was_opened_while_nobody_noted_it(memory, tiles):
    before = rasterio.open(tiles[0])
    served(memory, whole, tiles, "rasterio")
    assert np.array_equal(is_left_alone(memory, before.read), by_itself(tiles[0]))
    before.close()


def test_options_around_the_opening_tell_datasets_apart(memory, tiles):
    served(memory, whole, tiles, "rasterio")

    def opened_within():
        with rasterio.Env(GDAL_NUM_THREADS="2"):
            file = rasterio.open(tiles[0])
        with file:
            return file.read()

    def read_within():
        with rasterio.open(tiles[0]) as file, rasterio.Env(GDAL_NUM_THREADS="2"):
            return file.read()

    for read in (opened_within, read_within):
        assert np.array_equal(is_left_alone(memory, read), by_itself(tiles[0]))


def test_a_handle_that_is_shared_is_not_noted(memory, tiles):
    served(memory, whole, tiles, "rasterio")

    def read():
        with rasterio.open(tiles[0], sharing=True) as file:
            return file.read()

    assert np.array_equal(is_left_alone(memory, read), by_itself(tiles[0]))


def test_a_file_that_appears_beside_it_makes_it_another_dataset(memory, tiles):
    served(memory, whole, tiles, "rasterio")
    shutil.copy(tiles[1], f"{tiles[0]}.ovr")
    assert np.array_equal(is_left_alone(memory, lambda: whole(tiles[0])), by_itself(tiles[0]))


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


def test_points_of_a_file_that_was_replaced_before_its_reader_was_made(memory, tmp_path):
    """What was opened is what counts, and not what lies there by then."""
    clouds = written(tmp_path, decoding.write_cloud, "laz")

    def read(path, other=None):
        file = Path(path).open("rb")  # noqa: SIM115 - the reader closes it
        if other is not None:
            Path(other).replace(path)
        with laspy.open(file) as reader:
            return reader.read().x.copy()

    old, new = read(clouds[0]), read(clouds[1])
    served(memory, read, clouds[2:], "laspy")
    assert np.array_equal(memory.during(read, clouds[0], clouds[1]), old)
    for _ in range(3):
        assert np.array_equal(memory.during(read, clouds[0]), new)


def test_a_closed_dataset_raises_what_it_raises(memory, tiles):
    served(memory, whole, tiles, "rasterio")

    def read():
        with rasterio.open(tiles[0]) as file:
            pass
        return file.read()

    with pytest.raises(rasterio.errors.RasterioIOError):
        memory.during(read)


def test_a_dataset_of_other_files_is_not_noted(memory, tiles, tmp_path):
    served(memory, whole, tiles, "rasterio")
    mosaic = tmp_path / "all.vrt"
    mosaic.write_text(
        '<VRTDataset rasterXSize="256" rasterYSize="256">'
        "<GeoTransform>500000, 10, 0, 5000000, 0, -10</GeoTransform>"
        '<VRTRasterBand dataType="UInt16" band="1"><SimpleSource>'
        f"<SourceFilename>{tiles[0]}</SourceFilename><SourceBand>1</SourceBand>"
        "</SimpleSource></VRTRasterBand></VRTDataset>"
    )
    expected = by_itself(mosaic)
    assert np.array_equal(is_left_alone(memory, lambda: whole(mosaic)), expected)


def test_a_class_of_the_scripts_is_left_alone(memory, tiles):
    class Mine(rasterio.DatasetReader):
        def __hash__(self):
            raise AssertionError

    served(memory, whole, tiles, "rasterio")
    before = num_hits(memory)
    with Mine(tiles[0]) as file:
        assert np.array_equal(memory.during(file.read), by_itself(tiles[0]))
    assert num_hits(memory) == before


# -- laspy ---------------------------------------------------------------------------------------------


@pytest.fixture
def clouds(tmp_path):
    return written(tmp_path, decoding.write_cloud, "laz")


def points(path):
    cloud = laspy.read(path, laz_backend=laspy.LazBackend.Lazrs)
    return repr(cloud), cloud.points.array.tobytes(), [vlr.record_id for vlr in cloud.vlrs]


def test_clouds_are_served_as_laspy_returns_them(memory, clouds):
    expected = {path: points(path) for path in clouds}
    served(memory, points, clouds, "laspy")
    before = num_hits(memory, "laspy")
    for path in clouds:
        assert memory.during(points, path) == expected[path]
    assert num_hits(memory, "laspy") == before + NUM


def test_a_cloud_that_is_replaced_under_its_reader(memory, clouds):
    served(memory, points, clouds, "laspy")

    def read():
        with laspy.open(clouds[0], laz_backend=laspy.LazBackend.Lazrs) as reader:
            Path(clouds[1]).replace(clouds[0])
            return reader.read().points.array.tobytes()

    (_, old, _), (_, new, _) = points(clouds[0]), points(clouds[1])
    before = num_hits(memory, "laspy")
    assert memory.during(read) == old
    assert num_hits(memory, "laspy") == before
    assert memory.during(points, clouds[0])[1] == new


# -- a decoder that is made anew -----------------------------------------------------------------------


def test_what_was_noted_goes_with_a_second_opening():
    """As of `decoder.__init__(something that is no path)`."""

    class Kind:
        pass

    opener = opened.Opener(__name__, "Kind.__init__", ("source", 1), (__name__, "Kind"), True)
    globals()["Kind"] = Kind
    made = Kind()
    opened.note(opener, None, (made, b"content"), {}, 0, ())
    assert made in opened._openings
    opened.note(opener, None, (made, object()), {}, 0, ())
    assert made not in opened._openings
