"""Follow a run: events, logs, the end.

`streams` opens and reads one stream per node, `follower` parses the frames of `follow`, `monitor` follows until
the run ends, `logs` reads logs. Not here: the verdict (`plans/runs`) and output (`console/`). Start with `monitor`.
"""
