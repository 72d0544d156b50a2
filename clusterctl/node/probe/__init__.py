"""Facts of a node for `check`: `questions` asks with time limits, the other modules answer. The verb is
`verbs/probe`.

What the facts mean is decided in `plans/checks`.
"""
