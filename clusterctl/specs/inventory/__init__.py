"""The inventory file: values, format, parser.

`model` has the values, `schema` the file format, `parse` and `render` go between text and values. Only `schema`
imports pydantic. Not here: files of other tools (`specs/importers`). Start with `model`.
"""
