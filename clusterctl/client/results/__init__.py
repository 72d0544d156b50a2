"""Download a run's outputs and logs (`pull`).

`pull` requests and fetches, `file_receiver` takes one file, `target_dir` writes below one directory only. Not here:
which names of files are accepted (`plans/sync/received_names`). Start with `pull`.
"""
