"""Tests between nodes: connections (`mesh`) and collectives (`collective`, the deep check).

Plans and results are in `plans/diagnose`.
"""
