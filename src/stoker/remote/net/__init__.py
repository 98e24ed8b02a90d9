"""What travels between machines, and how: links, jobs, batches."""
