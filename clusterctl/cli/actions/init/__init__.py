"""The steps of `init`: from host names to an inventory and a job that run.

`machines` reads which machines are meant and what they report, `login` asks for host keys and a password and installs
the key, `write_files` shows and writes files. `command` is the whole verb; `script` makes the job of a script, also for
`launch SCRIPT.py`, without files. Start with `command`.
"""
