"""Stands in for torch where torch is not the point: a folder on PYTHONPATH, which costs nothing to import."""

__version__ = "9.9.0+stub"
