"""Implements the `stoker` command line: one file a subcommand."""
