"""Names all functions whose calls are served from the shelf. Each says why it may be where its work is made."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory.decoders.libraries import arrays, functions, opened, pillow
from stoker.memory.decoders.work import Work


class Redirected(NamedTuple):
    """A function whose calls are redirected, by module and dotted name there. shown: its name as a
    script writes it; work_of: of the function itself and a call's arguments, named ones too,
    returns the work, None if it is left alone."""

    module: str
    name: str
    shown: str
    work_of: Callable[[Any, tuple[Any, ...], dict[str, Any]], Work | None]


IMAGE_LOAD = Redirected("PIL.ImageFile", "ImageFile.load", "PIL.Image.open", pillow.work_of)
REDIRECTED = (
    *(
        Redirected(each.module, each.name, each.shown, functools.partial(functions.work_of, each))
        for each in functions.FUNCTIONS
    ),
    IMAGE_LOAD,
    Redirected("nibabel.arrayproxy", "ArrayProxy._get_scaled", "nibabel", arrays.work_of_nibabel),
    Redirected("pydicom.pixels.utils", "pixel_array", "pydicom", arrays.work_of_pydicom),
    Redirected("laspy.lasreader", "LasReader.read", "laspy", opened.work_of_laspy),
    Redirected("rasterio.io", "DatasetReader.read", "rasterio", opened.work_of_rasterio),
    *(
        Redirected(module, name, "torchcodec", functools.partial(opened.work_of_torchcodec, name))
        for module, name in opened.CODEC_METHODS
    ),
)
