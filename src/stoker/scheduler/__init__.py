"""What one stream does next: decisions, and nothing else."""
