"""YAML with the line and column of every value.

`reader` turns text into a `tree`, `validate` a tree into declared values. Not here: the values
(`specs/inventory/model`, `specs/job/model`). Start with `tree`.
"""
