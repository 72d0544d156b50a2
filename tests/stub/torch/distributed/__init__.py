"""Where torchrun lies."""
