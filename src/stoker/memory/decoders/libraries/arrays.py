"""Makes works of what scans are read by: nibabel's array proxies, pydicom's pixels, laspy's points.

nibabel: the file that a proxy reads from its beginning, and all that says how: shape, dtype, offset,
scale. pydicom: the bytes of the pixels as they lie in the dataset, however it came by them, and its
options of decoding; so a dataset may have been changed otherwise. laspy: the file that a reader has
opened by its path, and the header that it has read of it.

Promise: a proxy that keeps its file open, or maps it, a dataset of which anything else would be read,
and a reader that has read points before get no work.
Source: nibabel 5.4 arrayproxy.py; pydicom 3.0 pixels/utils.py, pixels/common.py `set_source`; laspy
2.7 lasreader.py, point/record.py `from_buffer`.
"""

import functools
import hashlib
import os
import sys
from typing import Any

from stoker.memory.decoders.arguments import NotPlain, described
from stoker.memory.decoders.values import payload_of, value_of
from stoker.memory.decoders.work import Work, is_plain_file, of_bytes, of_open_file, of_path
from stoker.memory.store import NotStorable


def work_of_nibabel(
    original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    """Return the work of `ArrayProxy._get_scaled(proxy, dtype, slicer)`."""
    proxy, *rest = arguments
    module = sys.modules["nibabel.arrayproxy"]
    if type(proxy) is not vars(module)["ArrayProxy"] or type(proxy.file_like) is not str:
        return None
    if proxy._persist_opener or not proxy.file_like.endswith((".gz", ".bz2")):
        return None  # what is not compressed is mapped into memory
    told = [
        proxy._shape,
        proxy._dtype,
        proxy._offset,
        proxy._slope,
        proxy._inter,
        proxy.order,
        proxy._mmap,
    ]
    path = os.path.abspath(proxy.file_like)  # noqa: PTH100  # without links, as it is opened
    try:
        all_told = described([told, rest, dict(sorted(named.items()))])
    except NotPlain:
        return None
    return Work(
        told=(path, all_told),
        paths=frozenset((path,)),
        identify=of_path(path),
        make=functools.partial(original, *arguments, **named),
        payload=payload_of,
        serve=value_of,
    )


def work_of_pydicom(
    original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    """Return the work of `pixel_array(dataset, **options)`."""
    (dataset,) = arguments
    library = sys.modules["pydicom.dataset"]
    if type(dataset) not in (vars(library)["FileDataset"], vars(library)["Dataset"]):
        return None
    if named.get("ds_out") is not None or dataset.get("NumberOfFrames", 1) in (None, 0, ""):
        return None  # it warns
    utilities = vars(sys.modules["pydicom.pixels.utils"])
    element = dataset["PixelData"]
    if type(element.value) is not bytes or "ExtendedOffsetTable" in dataset:
        return None
    options = dict(utilities["as_pixel_options"](dataset))
    options["number_of_frames"] = int(options["number_of_frames"])
    syntax = dataset.file_meta.TransferSyntaxUID
    try:
        told = described([str(syntax), str(element.VR), _sorted(options), _sorted(named)])
    except NotPlain:
        return None
    content = hashlib.blake2b(element.value, digest_size=16).digest()
    return Work(
        told=(content, told),
        paths=frozenset(),
        identify=of_bytes,
        make=functools.partial(original, dataset, **named),
        payload=payload_of,
        serve=value_of,
    )


def _sorted(options: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(options.items()))


def work_of_laspy(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Work | None:
    """Return the work of `LasReader.read(reader)`."""
    (reader,) = arguments
    library = sys.modules["laspy.lasreader"]
    if type(reader) is not vars(library)["LasReader"] or reader.points_read or not reader.closefd:
        return None
    header, file = reader.header, reader._source
    num_later = header.number_of_evlrs if header.version.minor >= 4 else 0
    if reader._point_source is not None or not is_plain_file(file):
        return None
    if num_later and reader.evlrs is None:
        return None  # it would read them too
    path = os.path.abspath(file.name)  # noqa: PTH100  # without links, as it was opened
    told = [
        str(header.version),
        header.point_format.id,
        str(header.point_format.dtype()),
        header.point_count,
        header.offset_to_point_data,
        header.are_points_compressed,
        header.scales.tolist(),
        header.offsets.tolist(),
        int(reader.decompression_selection),
        str(reader.laz_backend),
    ]
    return Work(
        told=(path, told),
        paths=frozenset((path,)),
        identify=of_open_file(path, file),
        make=functools.partial(original, reader),
        payload=_points_of,
        serve=functools.partial(_with_points, reader),
    )


def _points_of(holder: list[Any]) -> Any:
    """Return the bytes of the points, as an array."""
    numpy = sys.modules["numpy"]
    points = holder[0].points.array
    base = points.base
    if (
        type(base) is not memoryview
        or type(base.obj) is not bytearray
        or base.nbytes != points.nbytes
    ):
        raise NotStorable("is an array that shows another's memory")
    return numpy.frombuffer(base, numpy.uint8)


def _with_points(reader: Any, kept: Any) -> Any:
    """Return what `read` does, and leave its reader as that would."""
    library, records = sys.modules["laspy.lasreader"], sys.modules["laspy.point.record"]
    header = reader.header
    packed = vars(records)["PackedPointRecord"].from_buffer(
        bytearray(kept.tobytes()), header.point_format
    )
    points = vars(records)["ScaleAwarePointRecord"](
        packed.array, packed.point_format, header.scales, header.offsets
    )
    reader.points_read += header.point_count
    return vars(library)["LasData"](header=header, points=points)
