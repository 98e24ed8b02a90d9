"""Serves mounts: what the kernel asks, and what trainers and workers tell, is answered from the cache or the origin."""
