"""The process of a chain."""
