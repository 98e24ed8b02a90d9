"""What is in a message between the ranks, and the loops that write and read it on each device."""

from stoker.gradients.blocks.layout import NOWHERE, Segment, layout_of
from stoker.gradients.blocks.loops import NEAREST, loops_for

__all__ = ["NEAREST", "NOWHERE", "Segment", "layout_of", "loops_for"]
