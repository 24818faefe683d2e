"""The steps that `maintain_table` and `maintain_tables` share."""
