"""Watching a run: one stream per node (`follower`), logs (`reader`), attach until the run ends (`monitor`).

`node_report` keeps what one node has reported. The verdict is in `plans/runs`, the screen in `console`.
"""
