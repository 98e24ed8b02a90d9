"""Remembers what well-known functions make of a file, where samples themselves cannot be remembered."""
