"""YAML that knows line and column of every value.

`reader` turns text into a `tree`, `validate` a tree into a pydantic model. Not here: the models
(`specs/inventory/schema`, `specs/job/schema`). Start with `tree`.
"""
