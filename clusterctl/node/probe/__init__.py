"""Facts of a node for `check`.

`questions` runs them with time limits, the other modules answer. Not here: the verb (`node/verbs/probe`) and what
the facts mean (`plans/checks`). Start with `questions`.
"""
