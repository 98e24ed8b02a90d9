"""Decoders in one process: an image, array or sound from the shelf is what the function returns."""

import inspect
import io
import os
import pickle
import random
import sys
import threading
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFile, ImageOps, JpegImagePlugin

from stoker.memory.decoders import decoders, work
from stoker.memory.decoders.arguments import NotPlain, described
from stoker.memory.phases import Phase
from stoker.redirect import redirect
from tests.equality import decoding
from tests.unit.memory.serving import alone, served

NUM = 24
# Images that are not read to their end keep their files open, as scripts do.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def folder(tmp_path):
    for number in range(NUM):
        for write, ending in ((decoding.write_turned, "jpg"), (decoding.write_png, "png")):
            path = tmp_path / f"{number}.{ending}"
            write(path, number)
            os.utime(path, ns=(1, 1))
    return tmp_path


@pytest.fixture
def memory(monkeypatch):
    yield from alone(monkeypatch)


def all_counted(decoder):
    decoder._tally.close()
    return decoder._tally.counts


def loaded(path):
    image = Image.open(path)
    image.load()
    return image


def paths_of(folder, ending):
    return [str(folder / f"{number}.{ending}") for number in range(NUM)]


# -- behaviours of an image after open, each of a fresh one --------------------------------------------


def saved(image, **options):
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


def in_place(image):
    image.putpixel((1, 2), (3, 4, 5))
    access = image.load()
    access[4, 5] = (6, 7, 8)
    image.paste((9, 9, 9), (10, 10, 20, 20))
    ImageDraw.Draw(image).line((0, 0, 30, 30), fill=(1, 1, 1))
    return image.tobytes()


def closed(image):
    image.load()
    image.close()
    with pytest.raises(ValueError):
        image.getpixel((0, 0))
    return image.size


def in_context(image):
    with image as same:
        same.load()
        return same.tobytes(), same.fp


def attributes(image):
    image.load()
    return {
        name: value if type(value) in (int, str, bytes, tuple, list, dict, bool) else type(value)
        for name, value in vars(image).items()
    }


def reloaded(image):
    image.load()
    first = image.tobytes()
    return first, image.load()[7, 7], image.tobytes(), image.fp, image.tile


def drafted(image):
    return image.draft("L", (90, 70)), image.size, image.mode, image.tobytes()


def shrunk(image):
    image.thumbnail((50, 50))
    return image.size, image.tobytes()


def beyond(image):
    with pytest.raises(EOFError):
        image.seek(1)
    return image.tell(), image.tobytes()


def verified(image):
    image.verify()
    with pytest.raises((AttributeError, ValueError, AssertionError, OSError)):
        image.load()
    return image.size


def resaved_over(image):
    image.load()
    again = Image.open(io.BytesIO(saved(image, format="PNG")))
    return again.tobytes()


BEHAVIOURS = {
    "size": lambda image: (image.size, image.width, image.height),
    "mode": lambda image: (image.mode, image.getbands()),
    "format": lambda image: (image.format, image.format_description, image.get_format_mimetype()),
    "info": lambda image: (image.info, image.load() is None, image.info),
    "exif": lambda image: (dict(image.getexif()), image.tobytes(), dict(image.getexif())),
    "filename": lambda image: (image.filename, image.load()[0, 0], image.filename),
    "readonly": lambda image: (image.readonly, image.load()[0, 0], image.readonly),
    "type": lambda image: (type(image), isinstance(image, ImageFile.ImageFile), type(image.copy())),
    "bytes": lambda image: image.tobytes(),
    "raw bytes": lambda image: image.tobytes("raw", "BGR"),
    "array": lambda image: (np.asarray(image).copy(), np.asarray(image).flags.writeable),
    "interface": lambda image: image.__array_interface__,
    "copy": lambda image: (image.copy().tobytes(), image.tobytes()),
    "convert": lambda image: (image.convert("RGB").tobytes(), image.convert("L").tobytes()),
    "convert twice": lambda image: image.convert("HSV").convert("RGB").tobytes(),
    "crop": lambda image: (image.crop((10, 20, 90, 70)).tobytes(), image.tobytes()),
    "resize": lambda image: image.resize((100, 80), Image.BICUBIC, (5, 5, 200, 100)).tobytes(),
    "reduce": lambda image: image.reduce(3).tobytes(),
    "rotate": lambda image: image.rotate(30, expand=True).tobytes(),
    "transpose": lambda image: image.transpose(Image.Transpose.ROTATE_90).tobytes(),
    "turned": lambda image: ImageOps.exif_transpose(image).tobytes(),
    "turned in place": lambda image: (
        ImageOps.exif_transpose(image, in_place=True),
        image.tobytes(),
    ),
    "split": lambda image: [band.tobytes() for band in image.split()],
    "channel": lambda image: image.getchannel("G").tobytes(),
    "histogram": lambda image: (image.histogram(), image.getextrema(), image.getbbox()),
    "pixel": lambda image: (image.getpixel((3, 4)), image.load()[5, 6]),
    "in place": in_place,
    "alpha": lambda image: (image.putalpha(7), image.mode, image.tobytes()),
    "point": lambda image: image.point(lambda value: 255 - value).tobytes(),
    "quantize": lambda image: image.quantize(8).tobytes(),
    "jpeg": lambda image: saved(image, format="JPEG"),
    "png": lambda image: saved(image, format="PNG"),
    "saved again": resaved_over,
    "pickle": lambda image: pickle.loads(pickle.dumps(image)).tobytes(),
    "equal": lambda image: (image == image.copy(), image == Image.open(image.filename)),
    "close": closed,
    "context": in_context,
    "attributes": attributes,
    "again": reloaded,
    "draft": drafted,
    "thumbnail": shrunk,
    "seek": beyond,
    "frames": lambda image: (getattr(image, "n_frames", 1), getattr(image, "is_animated", False)),
    "verify": verified,
    "text": lambda image: (getattr(image, "text", None), image.load()[0, 0]),
    "representation": lambda image: (image.tobytes(), repr(image).partition(" at ")[0]),
    "palette": lambda image: (image.getpalette(), image.palette, image.tobytes()),
    "transparent": lambda image: (image.has_transparency_data, image.tobytes()),
    "torchvision": lambda image: np.array(image, copy=True).transpose(2, 0, 1),
}


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_an_image_from_the_shelf_behaves_as_one_that_was_decoded(folder, memory, ending):
    paths = paths_of(folder, ending)
    decoder = served(memory, loaded, paths)
    for number, (name, behave) in enumerate(BEHAVIOURS.items()):
        path = paths[number % NUM]

        def run(path=path, behave=behave):
            return behave(Image.open(path))

        plain = run()
        before = decoder._tally.num_hits
        ours = memory.during(run)
        np.testing.assert_equal(ours, plain, err_msg=name)
        if name not in ("size", "mode", "format", "frames", "verify", "draft", "thumbnail"):
            assert decoder._tally.num_hits > before, name
    assert not decoder.is_off
    assert decoder._tally.counts.num_differed == 0


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_a_file_is_left_where_a_load_leaves_it(folder, memory, ending):
    paths = paths_of(folder, ending)

    def run(path):
        with Path(path).open("rb") as file:
            image = Image.open(file)
            image.load()
            return file.tell(), file.closed, image.fp

    served(memory, run, paths)
    assert [memory.during(run, path) for path in paths] == [run(path) for path in paths]


def test_what_the_script_changes_is_its_own(folder, memory):
    paths = paths_of(folder, "jpg")
    served(memory, loaded, paths)
    for path in paths:
        image = memory.during(loaded, path)
        image.paste(0, (0, 0, *image.size))
        assert memory.during(loaded, path).tobytes() == loaded(path).tobytes()


def test_a_file_that_was_rewritten_is_decoded_again(folder, memory):
    paths = paths_of(folder, "jpg")
    served(memory, loaded, paths)
    for path in paths:
        size = Path(path).stat().st_size
        decoding.write_turned(Path(path), NUM)
        content = Path(path).read_bytes()[:size].ljust(size, b"\0")
        with Path(path).open("r+b") as file:
            file.write(content)
            file.truncate(size)
        os.utime(path, ns=(1, 1))
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            assert memory.during(loaded, path).tobytes() == loaded(path).tobytes()
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = False


def test_calls_in_threads_under_a_tracer_and_while_off_go_to_the_function(folder, memory):
    paths = paths_of(folder, "jpg")
    decoder = served(memory, loaded, paths)
    before = all_counted(decoder)

    def in_a_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(loaded(paths[0])))
        thread.start()
        thread.join()
        return found[0]

    def traced():
        old = sys.gettrace()
        sys.settrace(lambda *_: None)
        try:
            return loaded(paths[0])
        finally:
            sys.settrace(old)

    for image in (memory.during(in_a_thread), memory.during(traced), loaded(paths[0])):
        assert image.size == decoding.SIZE
    assert all_counted(decoder) == before


def test_a_process_that_a_dataset_forks_calls_the_functions_themselves(memory):
    def forked():
        assert memory.may_call()
        pid = os.fork()
        if pid == 0:
            os._exit(int(memory.may_call()))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert memory.during(forked) == 0


def test_a_function_that_opens_another_file_or_draws_is_left_alone(folder, memory, monkeypatch):
    def with_other(path):
        return Path(path).read_bytes() * 20 + Path(path).with_name("0.png").read_bytes()

    def that_draws(path):
        return sum(Path(path).read_bytes() * 20) + random.random()

    monkeypatch.setattr(decoders, "_active", memory)
    for function, why in ((with_other, "opens"), (that_draws, "draws random numbers")):
        each = decoders.Redirected("stoker", "", function.__name__, decoders.REDIRECTED[0].work_of)
        owner = types.SimpleNamespace(read=function)
        assert redirect(owner, "read", decoders._serving(each)) is not None
        for number in range(60):
            path = str(folder / f"{number % NUM}.jpg")
            assert type(memory.during(owner.read, path)) in (bytes, float)
        decoder = memory._decoders[function.__name__]
        assert decoder.is_off
        assert why in decoder._tally.known()[1]


def test_a_subclass_and_an_image_with_a_load_of_its_own_are_left_alone(folder, memory):
    class Own(JpegImagePlugin.JpegImageFile):
        pass

    paths = paths_of(folder, "jpg")
    decoder = served(memory, loaded, paths)
    before = all_counted(decoder)
    assert memory.during(lambda: Own(paths[0]).tobytes()) == loaded(paths[0]).tobytes()
    assert all_counted(decoder) == before


# -- functions -----------------------------------------------------------------------------------------


def test_a_function_keeps_its_identity_and_what_is_told_of_it(memory, folder):
    from torchvision.io import image as module
    from torchvision.io import read_image

    told = inspect.signature(read_image), inspect.getsource(read_image), read_image.__doc__
    names = read_image.__name__, read_image.__qualname__, read_image.__module__
    memory.look()
    assert module.read_image is read_image
    assert (
        inspect.signature(read_image),
        inspect.getsource(read_image),
        read_image.__doc__,
    ) == told
    assert (read_image.__name__, read_image.__qualname__, read_image.__module__) == names
    assert pickle.loads(pickle.dumps(read_image)) is read_image
    paths = paths_of(folder, "png")
    served(memory, lambda path: read_image(path), paths, "torchvision.io.read_image")
    for path in paths:
        ours, plain = memory.during(read_image, path), read_image(path)
        assert torch.equal(ours, plain)
        assert ours.stride() == plain.stride()
        ours.zero_()
        assert torch.equal(memory.during(read_image, path), plain)


def test_a_function_that_is_watched_for_its_files_is_redirected_too(memory, folder):
    cv2 = pytest.importorskip("cv2")
    memory._desk.watch_readers()
    paths = paths_of(folder, "jpg")
    served(memory, lambda path: cv2.imread(path), paths, "cv2.imread")
    for path in paths:
        assert np.array_equal(memory.during(lambda path=path: cv2.imread(path)), cv2.imread(path))


def test_an_error_names_the_functions_own_lines_and_line(memory, folder):
    memory.look()
    with pytest.raises(TypeError) as plain:
        np.load()
    assert "load" in str(plain.value)
    with pytest.raises(FileNotFoundError):
        memory.during(np.load, str(folder / "missing"))


def test_a_warning_names_the_callers_line_and_its_value_is_not_kept(memory, folder, monkeypatch):
    class Library:
        pass

    def read(path):
        warnings.warn("this file is odd", stacklevel=2)
        return sum(Path(path).read_bytes() * 20)

    Library.read = staticmethod(read)
    each = decoders.Redirected("stoker", "read", "read", decoders.REDIRECTED[0].work_of)
    assert redirect(Library, "read", decoders._serving(each)) is not None
    monkeypatch.setattr(decoders, "_active", memory)
    for _ in range(60):
        with pytest.warns(UserWarning, match="odd") as seen:
            memory.during(lambda: Library.read(str(folder / "0.png")))
        assert seen[0].filename == __file__
    assert memory._decoders["read"]._tally.counts.num_stored == 0


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_deprecation_that_python_ignores_keeps_no_value_out(
    memory, folder, monkeypatch, is_heard
):
    """As torchvision's, from 0.29 on, of its image decoders."""

    def _warn_deprecated():
        warnings.warn("of torchvision", DeprecationWarning)  # noqa: B028  # as there

    names = {**globals(), "__name__": "torchvision.io.image"}
    warn = types.FunctionType(_warn_deprecated.__code__, names)

    class Library:
        @staticmethod
        def read(path):
            warn()
            return sum(Path(path).read_bytes() * 20)

    each = decoders.Redirected("stoker", "read", "read", decoders.REDIRECTED[0].work_of)
    assert redirect(Library, "read", decoders._serving(each)) is not None
    monkeypatch.setattr(decoders, "_active", memory)
    with warnings.catch_warnings():
        warnings.simplefilter("always" if is_heard else "ignore", DeprecationWarning)
        monkeypatch.setattr(warnings, "showwarning", lambda *told: None)
        for path in paths_of(folder, "png") * 40:
            memory.during(Library.read, path)
    counts = all_counted(memory._decoders["read"])
    assert (counts.num_hits > 0, counts.num_stored > 0) == (not is_heard, not is_heard)


def test_a_file_that_nobody_closed_is_warned_of_where_it_is_without_stoker(memory, folder):
    """Unlike Pillow's own, a file of the script's that only its image holds ends with the load."""

    def seen(path, read):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read(lambda path: Image.open(Path(path).open("rb")).convert("RGB"), path)  # noqa: SIM115  # so
        return [(each.filename, each.lineno) for each in caught]

    paths = paths_of(folder, "jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = seen(paths[0], lambda read, path: read(path))
        served(memory, loaded, paths)
    assert [Path(name).name for name, _ in plain] == ["Image.py"]
    for path in paths:
        assert seen(path, memory.during) == plain


@pytest.mark.parametrize(
    "value",
    [object(), [1, {"a": {2}}], lambda: None, io.BytesIO(), np.arange(3), type("T", (), {})],
)
def test_what_is_no_plain_value_is_not_described(value):
    with pytest.raises(NotPlain):
        described(value)


def test_values_that_differ_are_described_differently():
    values = [
        0, False, 0.0, -0.0, "0", b"0", None, (0,), [0], {"a": 0}, slice(0), np.float32(0), np.int64(0),
        torch.float32, np.dtype("f4"), np.dtype(">f4"), Path("0"), np.float32,
    ]  # fmt: skip
    assert len({repr(described(each)) for each in values}) == len(values)


def test_an_image_of_an_open_file_and_one_of_a_path_leave_their_files_as_without_us(memory, folder):
    """`Image.open(path)` closes its file once it is loaded, and leaves a script's own open."""
    paths = sorted(map(str, folder.glob("*.jpg")))
    served(memory, loaded, paths)

    def closed(path):
        with Path(path).open("rb") as file:
            Image.open(file).load()
            return file.closed

    def by_path(path):
        image = Image.open(path)
        file = image.fp
        image.load()
        return file.closed

    for _ in range(3):
        for path in paths:
            assert memory.during(closed, path) is False
            assert memory.during(by_path, path) is True
    assert not all_counted(memory._decoders[decoding.PICTURES]).num_differed


def test_what_inspect_tells_of_a_redirected_function_is_what_it_told(memory, folder):
    function = ImageFile.ImageFile.load
    before = inspect.getfullargspec(function), inspect.signature(function, follow_wrapped=False)
    served(memory, loaded, sorted(map(str, folder.glob("*.jpg"))))
    assert (
        inspect.getfullargspec(function),
        inspect.signature(function, follow_wrapped=False),
    ) == before


def test_a_value_that_differs_ends_it(memory, folder, monkeypatch):
    """As if a file could change and nothing told."""
    paths = sorted(map(str, folder.glob("*.jpg")))
    monkeypatch.setattr(work, "identity_of", lambda path, descriptor=None: (path, 1, 1, 1, 1, 1))
    decoder = served(memory, loaded, paths)
    Path(paths[1]).replace(paths[0])
    expected = np.asarray(loaded(paths[0]))
    memory._desk.audit = True
    decoder._refresh()
    assert np.array_equal(memory.during(loaded, paths[0]), expected)
    counts, why = decoder._tally.known()
    assert counts.num_differed == 1
    assert why == f"{paths[0]} differed when it was read again"
    assert decoder.is_off
    assert np.array_equal(memory.during(loaded, paths[0]), expected)
    again = decoders.Decoder(memory._desk, decoding.PICTURES)  # as another loader's would be
    again._phase = Phase.SERVING
    assert again.get(work.Work((), frozenset(), lambda: (), lambda: 5, None, None)) == 5
    assert again.is_off
