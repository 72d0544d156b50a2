"""What users write: inventory and job, with all mistakes reported at once.

Pure. `inventory/` and `job/` each have values and parser; `fields` and `kinds` are what a key takes, `values` parses
single values, `render` writes new files; `yaml/` reads YAML with line numbers, `importers/` files of other tools.
Not here: reading the file (`cli/context/load`). Start with `job/model`.
"""
