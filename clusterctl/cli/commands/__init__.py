"""One module per verb: its options and help text.

Nothing here takes long to import. `status` also holds `ps`. Not here: the work, which is in `cli/actions` and is
imported when the verb runs. Start with `launch`.
"""
