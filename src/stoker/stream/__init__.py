"""One loader's life on the trainer's side."""
