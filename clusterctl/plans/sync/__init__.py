"""Which files are sent or fetched: `.gitignore` rules, the manifest of a tree, results."""
