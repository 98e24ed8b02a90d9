"""torch's names, on the trainer's side."""
