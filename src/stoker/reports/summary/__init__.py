"""Formats the end of a run in at most five lines."""

from stoker.reports.summary.lines import MAX_LINES, readable_nbytes, summary
from stoker.reports.summary.verdict import LIMIT_FRAC, OTHER_DRAWS

__all__ = ["LIMIT_FRAC", "MAX_LINES", "OTHER_DRAWS", "readable_nbytes", "summary"]
