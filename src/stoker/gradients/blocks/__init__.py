"""Defines the messages between the ranks, and each device's loops that write and read them."""

from stoker.gradients.blocks.layout import NOWHERE, Segment, layout_of
from stoker.gradients.blocks.loops import NEAREST, loops_for

__all__ = ["NEAREST", "NOWHERE", "Segment", "layout_of", "loops_for"]
