"""Logs of runs, in the user's state folder: written while a run lasts, listed, shown and compared."""
