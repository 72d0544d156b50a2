"""What staged files need besides a transfer: locks of places, parts, room, remembered hashes, records.

Not here: the files themselves (`node/sync/files_by_hash`) and downloads (`node/sync/remote`). Start with `staged`.
"""
