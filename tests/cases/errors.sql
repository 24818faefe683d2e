-- One statement and its exact error, on the table of tests/unit/test_cases.py: four files of one row each.
-- `--! ` is the text of the error. A statement that is an error changes nothing.

CALL compact_table('db.t', targt => '1MB');
--! compact_table: unknown argument 'targt' (line 1, column 28). Did you mean 'target'?

CALL compact_table();
--! compact_table: argument 'table' is missing. Give it first: CALL compact_table('db.events').

CALL compact_table(5);
--! compact_table: argument 'table': 5 is not a string (line 1, column 20)

CALL compact_table('db.nothing');
--! compact_table: there is no table 'db.nothing' in catalog 'plain'. Tables there: db.t.

CALL compact_table('nowhere.db.t');
--! compact_table: catalog 'plain' has no namespace 'nowhere.db', so there is no table 'nowhere.db.t'. Namespaces: db. Iceberg catalogs: plain.

CALL compact_table('');
--! compact_table: argument 'table': '' is empty; give a value (line 1, column 20)

CALL compact_table('db.t', target = '1MB');
--! compact_table: named arguments are written target => value, not target = value (line 1, column 35) CALL compact_table('db.t', target = '1MB'); ^

CALL compact_table('db.t', target => '5 parrots');
--! compact_table: argument 'target': '5 parrots' is not a size such as '512MB', '1g', '1.5 GiB' or a number of bytes (line 1, column 28)

CALL compact_table('db.t', target => 0);
--! compact_table: argument 'target': 0 must be at least 1 B (line 1, column 28)

CALL compact_table('db.t', '1MB', target => '1MB');
--! compact_table: argument 'target' is given twice (line 1, column 35). Give it once.

CALL compact_table(table => 'db.t', '1MB');
--! compact_table: argument 2 stands after a named argument (line 1, column 37). Positional ones go first. CALL compact_table(table => 'db.t', '1MB'); ^

CALL compact_table('db.t', branch => 'missing');
--! compact_table: branch 'missing' does not exist. The table has: main.

CALL compact_table('db.t', strategy => 'shuffle');
--! compact_table: argument 'strategy': 'shuffle' is not one of binpack, sort, zorder, hilbert (line 1, column 28)

CALL compact_table('db.t', where => 'nothing = 1');
--! compact_table: where is refused: there is no column 'nothing', at line 1, column 1 of the filter: nothing. Columns: id long, name string.

CALL compact_table('db.t', where => 'id = ');
--! compact_table: where is refused: it cannot be read near '=' (line 1, column 4 of the filter). Use comparisons, IN, BETWEEN, IS NULL, LIKE 'prefix%', AND, OR and NOT over columns and constants, and years(), months(), days(), hours(), bucket() or truncate() of a column. Columns: id long, name string.

CALL compact_table('db.t', where => 'id = name');
--! compact_table: where is refused: one side of a comparison must be a constant, at line 1, column 1 of the filter: id = name. Use comparisons, IN, BETWEEN, IS NULL, LIKE 'prefix%', AND, OR and NOT over columns and constants, and years(), months(), days(), hours(), bucket() or truncate() of a column. Columns: id long, name string.

CALL compact_table('db.t', where => '');
--! compact_table: argument 'where': '' is empty; give a value, or NULL for the default (line 1, column 28)

CALL compact_table('db.t', options => map('min-input-file', '2'));
--! compact_table: unknown option 'min-input-file'. Did you mean 'min-input-files'?

CALL compact_table('db.t', min_file_size => '2MB', target => '1MB');
--! compact_table: min_file_size 2 MB must be below target 1 MB

CALL compact_table('db.t', output_spec_id => 7);
--! compact_table: output_spec_id 7 is not a spec of the table, which has: 0

CALL compact_table('db.t', idle => '6M');
--! compact_table: argument 'idle': '6M' is ambiguous: write '6 months' or '6 minutes' (line 1, column 28)

CALL compact_table('db.t', idle => '6 months');
--! compact_table: argument 'idle': '6 months' has no fixed length, since months and years differ; give days, such as '30 days' (line 1, column 28)

CALL expire_snapshots('db.t', older_than => '6M');
--! expire_snapshots: argument 'older_than': '6M' is ambiguous: write '6 months' or '6 minutes' (line 1, column 31)

CALL expire_snapshots('db.t', retain_last => 0);
--! expire_snapshots: argument 'retain_last': 0 must be at least 1 (line 1, column 31)

CALL expire_snapshots('db.t', snapshot_ids => array(1));
--! expire_snapshots: snapshot_ids names 1, which the table does not have. Snapshots it has: 4; their ids are in its metadata table `snapshots`.

CALL remove_orphans('db.t', older_than => '1h');
--! remove_orphans: older_than is less than 24 hours ago: files of a write under way would look like orphans. Give a time at least 24 hours ago; the default is 3 days.

CALL remove_orphans('db.t', location => '');
--! remove_orphans: argument 'location': '' is empty; give a value, or NULL for the default (line 1, column 29)

CALL remove_orphans('db.t', location => '/elsewhere');
--! remove_orphans: location /elsewhere is outside what the table owns (file://<lake>/warehouse/db/t). Files are deleted only inside the table's location, write.data.path and write.metadata.path.

CALL remove_orphans('db.t', prefix_mismatch_mode => 'MAYBE');
--! remove_orphans: argument 'prefix_mismatch_mode': 'MAYBE' is not one of ERROR, IGNORE, DELETE (line 1, column 29)

CALL rewrite_manifests('db.t', spec_id => 9);
--! rewrite_manifests: the table has no partition spec 9. It has: 0.

CALL maintain_table('db.t', steps => array('polish'));
--! maintain_table: steps names 'polish', which is not one of compact, position_deletes, manifests, expire, orphans

CALL help('compact_tabel');
--! help: there is no procedure 'compact_tabel'. Did you mean 'compact_table'?
