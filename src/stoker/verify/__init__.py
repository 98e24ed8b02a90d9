"""Implements `stoker verify`: records two runs, compares them and formats the verdict."""
