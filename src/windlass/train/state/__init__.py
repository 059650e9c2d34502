"""What is saved, and where a training stands."""
