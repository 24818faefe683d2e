"""The way in: CALL text, parameters, the doors."""
