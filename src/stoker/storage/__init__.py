"""Shows object stores as folders: a mount of the run's own, a cache shared by a machine's workers, and look-ahead."""
