"""YAML with places: text to a tree (`reader`, `tree`), tree to a pydantic model (`validate`)."""
