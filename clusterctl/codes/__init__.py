"""Every code that a user can meet: its texts, as data.

Start at `entry.py` for the parts of an entry, at `lookup.py` to look one up. The other modules are the table.
"""
