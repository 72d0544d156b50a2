"""`pull`: list and fetch outputs (`pull`), receive one file (`receive`), write below one directory only
(`target_dir`).

Which files are taken is decided in `plans/sync/results`.
"""
