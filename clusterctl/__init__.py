"""Train PyTorch models on machines that are reachable only by SSH."""

__version__ = "0.1.0"
