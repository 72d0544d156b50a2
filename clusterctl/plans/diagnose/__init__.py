"""Plans and results of tests between nodes: connections (`mesh`) and the deep check (`collective`)."""
