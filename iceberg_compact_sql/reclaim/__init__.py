"""Delete what no snapshot needs: expired snapshots, their files, and orphans.

A file may be deleted only if all of these rules hold. They are checked again right before the deletion:

1. The catalog gave all snapshots, refs and statistics of the table (`catalogs.complete_metadata`), and none of them
   needs the file (`reachability`, `known_files`). Nothing in them looks damaged (`damage_checks`).
2. The table is not a copied folder, and no version of it is current under another name or catalog
   (`metadata_versions`).
3. The file is inside a folder that the table owns (`owned_roots`). The folder holds no metadata of another table
   (`metadata_versions`), and no other table of the catalog writes to it (`named_by_others`). A metadata file of a view
   is never an orphan.
4. No other table or view of the catalog names the file (`named_by_others`). An expiry checks every table only for files
   outside the table's folders. Inside them a table owns what its snapshots name, as in Iceberg, unless gc.enabled is
   false.

If a rule cannot be checked, nothing is deleted, and the error names the table or file.
"""
