"""Decides whether compression gains here: estimates what it costs, then tries it on real steps."""

from stoker.gradients.gate.outlook import Seen, Sent, outlook_of, seen, words
from stoker.gradients.gate.picker import Picker
from stoker.gradients.gate.survey import Survey
from stoker.gradients.gate.table import Measured, as_table
from stoker.gradients.gate.trial import TrialResult

__all__ = [
    "Measured",
    "Picker",
    "Seen",
    "Sent",
    "Survey",
    "TrialResult",
    "as_table",
    "outlook_of",
    "seen",
    "words",
]
