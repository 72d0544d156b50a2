"""Verbs that write files anywhere on a node (`take`, `download`), and list what was staged (`staged`).

Not here: a run's code (`node/verbs/sync`), and listing and sending of files (`node/verbs/files`). Start with `take`.
"""
