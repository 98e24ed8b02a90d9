"""Implements `stoker doctor`: examines a script as plain PyTorch runs it, and tells what would make it faster."""
