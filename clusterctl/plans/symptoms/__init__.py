"""Texts that ranks are known to end with, and what they mean."""
