"""The steps of `init`: from host names to an inventory and a job that run.

`hosts` finds out which machines are meant, `login` asks for host keys and a password, `push_keys` installs the key,
`machines` reads the machines, `drafts` makes the job of a script, `write_files` shows and writes files. `command` is
the whole verb; `script` does the same for `launch SCRIPT.py`, without files. Start with `command`.
"""
