"""What others know of scheduling: tasks, slots, points, chains, and the order of batches."""
