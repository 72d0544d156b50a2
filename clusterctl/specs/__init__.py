"""What users write: inventory and job, read with all mistakes at once; pure.

`inventory/` and `job/` have the values (`model`), the file format (`schema`) and the way between (`parse`,
`render`); `yaml/` reads YAML with line numbers, `importers/` the files of other tools. The other modules
are field types and texts that all of them use. Start with `job/model`.
"""
