"""Iterators that replace torch's, one file for each kind of loader, and their workers' driver."""
