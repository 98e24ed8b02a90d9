"""Faster ways under the same names, in workers: what they have in common, and tables of audio libraries."""
