"""Runs worker processes on other machines."""
