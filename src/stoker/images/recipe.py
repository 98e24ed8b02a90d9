"""What is to be made of an image, as it has been asked for so far: nothing of it is done yet.

    source -> box, a part of it -> resampled -> want, a part of that -> mirrored, flipped

Promise: what a recipe says is what the steps that it was made of give, one after the other, to the bit; a step
that it cannot say (a second resampling, a part that reaches out of the image) gives None.
Pure: no pixel is looked at.
"""

from typing import Any, NamedTuple

NO_FILTER = -1
MAX_SIDE = 65500  # pixels; also of a JPEG file
MAX_PIXELS = 1 << 26  # of what a resampling may give
Size = tuple[int, int]  # width, height
Box = tuple[int, int, int, int]  # left, top, width, height


class Recipe(NamedTuple):
    """source: of the pixels; box: the part of it; to_size, filter: what the box is resampled to;
    want: the part of that; is_mirrored: left to right; is_flipped: top to bottom."""

    source: Any
    box: Box
    to_size: Size
    filter: int
    want: Box
    is_mirrored: bool = False
    is_flipped: bool = False

    @property
    def size(self) -> Size:
        return self.want[2:]

    @property
    def is_cut(self) -> tuple[bool, bool]:
        """Whether not all columns of the source may be needed, and not all rows."""
        (left, top, width, height), (x, y, want_width, want_height) = self.box, self.want
        (of_width, of_height), (to_width, to_height) = self.source.size, self.to_size
        return (
            (left, x, width, want_width) != (0, 0, of_width, to_width),
            (top, y, height, want_height) != (0, 0, of_height, to_height),
        )

    def cropped(self, left: int, top: int, width: int, height: int) -> "Recipe | None":
        """Return the recipe of a part; None if that is empty, or not all inside."""
        x, y, before_width, before_height = self.want
        if width < 1 or height < 1 or left < 0 or top < 0:
            return None
        if left + width > before_width or top + height > before_height:
            return None
        if self.is_mirrored:
            left = before_width - left - width
        if self.is_flipped:
            top = before_height - top - height
        if self.filter == NO_FILTER:
            box = (self.box[0] + left, self.box[1] + top, width, height)
            return self._replace(box=box, to_size=(width, height), want=(0, 0, width, height))
        return self._replace(want=(x + left, y + top, width, height))

    def resized(self, width: int, height: int, resample: int) -> "Recipe | None":
        """Return the recipe of what Pillow's resize gives; None if it was resampled or mirrored
        before: the two do not commute to the bit."""
        if (width, height) == self.size:
            return self
        if self.filter != NO_FILTER or self.is_mirrored or self.is_flipped:
            return None
        if not 1 <= width <= MAX_SIDE or not 1 <= height <= MAX_SIDE:
            return None
        if width * height > MAX_PIXELS:
            return None  # there may be no memory for it: that is to be said at this call
        return self._replace(to_size=(width, height), filter=resample, want=(0, 0, width, height))

    def mirrored(self) -> "Recipe":
        return self._replace(is_mirrored=not self.is_mirrored)

    def flipped(self) -> "Recipe":
        return self._replace(is_flipped=not self.is_flipped)


def whole(source: Any, size: Size) -> Recipe:
    """Return the recipe of a source as it is. size: width and height of it."""
    everything = (0, 0, *size)
    return Recipe(source, everything, size, NO_FILTER, everything)
