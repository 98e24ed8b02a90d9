"""Tensors of libraries' own classes come back with all that they hold, and MONAI's Compose is parted by
its own code. Skipped where the library is not installed."""

import collections

import numpy as np
import pytest
import torch

from stoker.memory.cut import compose
from stoker.memory.store import NotStorable, Value, encode, is_alone, is_valid


def there_and_back(value, copied=True):
    assert is_valid(memoryview(b"".join(encode((value,)))))
    memory = bytearray(b"".join(encode(value)))
    return Value(memoryview(memory)).build(copied)


@pytest.fixture(scope="module")
def monai():
    return pytest.importorskip("monai")


@pytest.fixture(scope="module")
def transforms(monai):
    from monai import transforms

    return transforms


def image_of(monai, values):
    from monai.data import MetaTensor
    from monai.utils.enums import MetaKeys, SpaceKeys

    meta = {
        "dim": np.array(3, "int16"),
        MetaKeys.SPATIAL_SHAPE: np.array([2, 3], "int16"),
        MetaKeys.ORIGINAL_CHANNEL_DIM: float("nan"),
        MetaKeys.SPACE: SpaceKeys.LPS,
    }
    done = [{"class": "Flip", "id": 7, "extra_info": {"affine": torch.eye(3)}}]
    return MetaTensor(values, torch.eye(4).double(), meta, done)


@pytest.mark.parametrize("copied", [False, True])
def test_an_image_of_monais_comes_back(monai, copied):
    image = image_of(monai, torch.randn(2, 3, 4).permute(1, 0, 2))
    found = there_and_back({"image": image}, copied)["image"]
    assert type(found) is type(image)
    assert found.stride() == image.stride()
    assert torch.equal(found.as_tensor(), image.as_tensor())
    assert list(map(type, found.meta)) == list(map(type, image.meta))
    assert repr(found.meta) == repr(image.meta)
    assert found.meta["space"] is image.meta["space"]
    assert type(found.affine) is torch.Tensor
    assert repr(found.applied_operations) == repr(image.applied_operations)
    assert vars(found).keys() == vars(image).keys()
    if copied:  # else its arrays show the shelf's memory
        assert b"".join(encode(found)) == b"".join(encode(image))


def test_an_image_that_shares_what_it_tells_is_not_alone(monai):
    values = {"image": image_of(monai, torch.ones(2, 2))}
    assert is_alone(values, "image")
    other = values["image"].meta
    assert not is_alone(values, "image")
    del other
    values["mask"] = image_of(monai, torch.ones(2, 2))
    values["mask"].applied_operations = values["image"].applied_operations
    assert not is_alone(values, "mask")


def test_what_an_image_holds_must_be_storable(monai):
    image = image_of(monai, torch.ones(2, 2))
    image.meta["more"] = collections.Counter()
    with pytest.raises(NotStorable, match="Counter"):
        encode(image)
    kind = type("Own", (type(image),), {})
    with pytest.raises(NotStorable, match="Own"):
        encode(torch.ones(2).as_subclass(kind))


@pytest.mark.parametrize("name", ["Image", "Mask", "Video"])
def test_images_of_torchvisions_come_back(name):
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    image = getattr(tv_tensors, name)(torch.arange(24, dtype=torch.uint8).reshape(1, 2, 3, 4))
    found = there_and_back(image)
    assert type(found) is type(image)
    assert torch.equal(found, image)


def test_boxes_tell_more_and_are_not_kept():
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    boxes = tv_tensors.BoundingBoxes(torch.ones(1, 4), format="XYXY", canvas_size=(5, 5))
    with pytest.raises(NotStorable):
        encode(boxes)


# -- MONAI's Compose --------------------------------------------------------------------------------


class Add:
    def __init__(self, number):
        self.number = number

    def __call__(self, data):
        if data.get("fails") == self.number:
            raise LookupError(self.number)
        return data | {"x": [*data["x"], self.number]}


def twice(data):
    return [data | {"x": [*data["x"], k]} for k in (7, 8)]


@pytest.fixture
def made(transforms):
    return transforms.Compose([Add(1), twice, Add(2), transforms.Identityd(["x"]), Add(3)])


def test_both_parts_of_monais_compose_do_what_it_does(made):
    expected = made({"x": []})
    assert compose.length_of(made) == 5
    for k in range(6):
        front, back = compose.part(made, 0, k), compose.part(made, k, None)
        assert back(front({"x": []})) == expected
        assert (type(front), front.map_items) == (type(made), made.map_items)
    assert [type(each) for each in made.transforms][1] is type(twice)


def test_monais_compose_tells_of_each_transform(made):
    seen = []
    assert compose.watched(made, seen.append)({"x": []}) == made({"x": []})
    assert seen == [0, 1, 2, 3, 4, 5]
    seen.clear()
    with pytest.raises(RuntimeError, match="applying transform"):
        compose.watched(made, seen.append)({"x": [], "fails": 2})
    assert seen == [0, 1, 2]


def test_a_compose_that_does_more_is_left_whole(transforms, made):
    steps = made.transforms
    assert not compose.length_of(transforms.Compose(steps, lazy=True))
    assert not compose.length_of(transforms.Compose(steps, lazy=None))
    assert not compose.length_of(transforms.Compose(steps, overrides={"x": {"mode": 1}}))
    assert not compose.length_of(transforms.Compose(steps, log_stats=True))
    assert not compose.length_of(transforms.OneOf(steps))
    assert not compose.length_of(transforms.SomeOf(steps, num_transforms=2))
    made.more = 1
    assert not compose.length_of(made)


def test_monai_is_as_it_was_when_its_compose_was_read(transforms):
    import inspect

    source = inspect.getsource(transforms.compose.execute_compose)
    assert "for _transform in transforms[start:end]:" in source
    assert "data = apply_pending_transforms(data, None, overrides, logger_name=log_stats)" in source
    assert vars(transforms.Compose([])).keys() == {
        "transforms", "map_items", "unpack_items", "log_stats", "overrides", "R", "_lazy",
    }  # fmt: skip
