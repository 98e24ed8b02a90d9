"""Replaces torch functions in the training process, so that loaders and DDP use stoker."""
