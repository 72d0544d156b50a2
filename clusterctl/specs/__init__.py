"""What users write: inventory and job, with all mistakes reported at once.

Pure. `inventory/` and `job/` each have values, file format and parser; `yaml/` reads YAML with line numbers,
`importers/` reads files of other tools; the other modules are field types and texts. Not here: reading the file
(`cli/context/load`). Start with `job/model`.
"""
