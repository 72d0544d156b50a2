"""The job file: values, format, parser.

`model` has the values, without pydantic; `schema` and `hooks` the file format, `parse` reads text, `render` writes
a new file. Not here: command lines (`plans/launch`). Start with `model`.
"""
