"""The steps of `init`: from host names to an inventory and a job that run.

`machines` reads the machines, `push_keys` installs a key, `pythons` finds the Python of each, `command` is the whole
verb, `write_files` writes what it made. Start with `command`.
"""
