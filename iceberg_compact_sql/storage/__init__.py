"""Access to files by their exact path. Only this package parses paths."""
