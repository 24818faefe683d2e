"""The quickstart: a demo lake and a tour of it."""
