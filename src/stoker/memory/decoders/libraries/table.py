"""Names all functions whose calls are served from the shelf. Each says why it may be where its work is made."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory.decoders.libraries import functions, pillow
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
)
