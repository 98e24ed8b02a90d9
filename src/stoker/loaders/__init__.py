"""Iterators in place of torch's, one file for each kind of loader, and what drives their workers."""
