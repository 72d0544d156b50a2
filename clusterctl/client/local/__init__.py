"""This machine: private files (`private_files`), parsed files kept for the next command (`parse_cache`),
notifications and `on_end` (`notify`).
"""
