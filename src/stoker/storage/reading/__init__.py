"""Reads an origin's files by blocks, each fetched once and kept where there is room."""
