"""Makes works of what scans are read by: nibabel's array proxies, and pydicom's pixels.

nibabel: the file that a proxy reads from its beginning, and all that says how: shape, dtype, offset,
scale. pydicom: the bytes of the pixels as they lie in the dataset, however it came by them, and its
options of decoding; so a dataset may have been changed otherwise.

Promise: a proxy that keeps its file open, or maps it, and a dataset of which anything else would be
read get no work.
Source: nibabel 5.4 arrayproxy.py; pydicom 3.0 pixels/utils.py, pixels/common.py `set_source`.
"""

import functools
import hashlib
import sys
from typing import Any

from stoker.memory.decoders.arguments import NotPlain, described
from stoker.memory.decoders.work import Work, of_bytes, of_path
from stoker.memory.watch import absolute


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
    path = absolute(proxy.file_like)  # without links, as it is opened
    try:
        all_told = described([told, rest, dict(sorted(named.items()))])
    except NotPlain:
        return None
    return Work(
        told=(path, all_told),
        paths=frozenset((path,)),
        identify=of_path(path),
        make=functools.partial(original, *arguments, **named),
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
    )


def _sorted(options: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(options.items()))
