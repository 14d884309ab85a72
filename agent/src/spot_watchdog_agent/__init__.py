"""Checkpoints for PyTorch jobs on AWS Spot."""
