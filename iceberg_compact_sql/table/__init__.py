"""What a table is to us: catalogs, names, and the inventory of one snapshot."""
