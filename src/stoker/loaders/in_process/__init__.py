"""Runs `num_workers=0` loaders on cores that are idle, if the script cannot tell the difference."""
