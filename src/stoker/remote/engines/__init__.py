"""Starts hosts: on Ray, or as plain processes."""
