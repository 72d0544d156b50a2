"""The job's `setup`, `before` and `after`, in child processes of the agent.

`build` makes the environment, `commands` runs lists of commands. Not here: when they run (`node/lifecycle`).
"""
