"""The job's `setup`, `before` and `after` in child processes: `build` makes the environment, `commands` runs
command lists.
"""
