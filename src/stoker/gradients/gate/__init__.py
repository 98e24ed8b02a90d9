"""Whether compressing gains here: what it should cost, and a trial that decides."""

from stoker.gradients.gate.picker import Picker
from stoker.gradients.gate.trial import Verdict

__all__ = ["Picker", "Verdict"]
