"""What shows machines and runs over time: `top` now, its history of a run, and `report`.

`diagnosis` asks the ranks of a run where they are, for `diagnose` and `ui`.
Start with top.py for what is live, with report.py for what is on record.
"""
