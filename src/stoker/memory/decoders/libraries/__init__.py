"""Makes works of calls, one library or kind of library a file."""

from stoker.memory.decoders.libraries.table import IMAGE_LOAD, REDIRECTED, Redirected

__all__ = ["IMAGE_LOAD", "REDIRECTED", "Redirected"]
