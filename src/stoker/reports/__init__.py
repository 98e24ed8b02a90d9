"""Counts what a run does while it lasts, and reports it at its end, whatever ends it."""
