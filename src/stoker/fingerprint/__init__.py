"""Checks whether work leaves a trace, or depends on more than its inputs."""
