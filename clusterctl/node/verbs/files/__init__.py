"""Verbs that carry files: `pull`, the results of a run, and `copy`, any files (`clusterctl cp`).

Start with `pull`: `copy` lists and sends as it does, and takes files as the verb `sync` takes code.
"""
