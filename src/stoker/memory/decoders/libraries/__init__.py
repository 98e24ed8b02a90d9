"""Makes works of calls, one library or kind of library a file."""

from stoker.memory.decoders.libraries.opened import OPENERS, Opener, note
from stoker.memory.decoders.libraries.table import REDIRECTED, Redirected

__all__ = ["OPENERS", "REDIRECTED", "Opener", "Redirected", "note"]
