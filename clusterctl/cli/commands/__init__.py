"""One module per verb: its options and help, and nothing that takes long to import.

The work is in `cli/actions`, imported when the verb runs. `status` also holds `ps`.
"""
