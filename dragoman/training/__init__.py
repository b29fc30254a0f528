"""Training: the loop, its loss, its schedule, its checkpoints and its journal."""
