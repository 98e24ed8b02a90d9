"""Decides what one loader's stream of batches does next, and carries nothing out."""
