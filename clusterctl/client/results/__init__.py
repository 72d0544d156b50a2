"""Download a run's outputs and logs (`pull`).

`pull` requests and fetches, `receive` takes one file, `target_dir` writes below one directory only. Not here: which
files are accepted (`plans/sync/results`). Start with `pull`.
"""
