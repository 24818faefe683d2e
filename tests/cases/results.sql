-- One statement and its rows, on the table of tests/unit/test_cases.py: four files of one row each.
-- `--> ` is one row: the columns to compare, as JSON. A statement without such a line gives no row.

CALL compact_table('db.t');
--> {"rewritten_data_files_count": 0, "added_data_files_count": 0, "failed_data_files_count": 0, "removed_delete_files_count": 0, "rows_count": 0, "copied_row_groups_count": 0, "groups_count": 0, "commits_count": 0, "depth_before": null, "depth_after": null, "spliced_columns_count": 0}

CALL compact_table('db.t', min_input_files => 2);
--> {"rewritten_data_files_count": 4, "added_data_files_count": 1, "failed_data_files_count": 0, "removed_delete_files_count": 0, "rows_count": 4, "copied_row_groups_count": 0, "groups_count": 1, "commits_count": 1}

CALL compact_table('db.t', min_input_files => 2, dry_run => true);
--> {"group_id": 1, "partition": "", "spec_id": 0, "action": "rewrite", "data_files": 4, "delete_files": 0, "expected_files": 1, "copied_row_groups": 0}

CALL COMPACT_TABLE(`table` => 'plain.db.t', Min_Input_Files => 1 + 1) /* a comment */;
--> {"rewritten_data_files_count": 4, "added_data_files_count": 1, "failed_data_files_count": 0, "removed_delete_files_count": 0, "rows_count": 4, "copied_row_groups_count": 0, "groups_count": 1, "commits_count": 1}

CALL compact_table('db.t', options => map('min-input-files', '2'), where => 'id < 2');
--> {"rewritten_data_files_count": 2, "added_data_files_count": 1, "failed_data_files_count": 0, "removed_delete_files_count": 0, "rows_count": 2, "copied_row_groups_count": 0, "groups_count": 1, "commits_count": 1}

CALL compact_table('db.t', rewrite_all => true, where => 'id > 100');
--> {"rewritten_data_files_count": 0, "added_data_files_count": 0, "failed_data_files_count": 0, "removed_delete_files_count": 0, "rows_count": 0, "copied_row_groups_count": 0, "groups_count": 0, "commits_count": 0, "depth_before": null, "depth_after": null, "spliced_columns_count": 0}

CALL score_partitions('db.t');
--> {"partition": "", "spec_id": 0, "data_files": 4, "rows": 4, "small_files": 4, "delete_files": 0, "deleted_rows_ratio": 0.0, "fragment_ratio": 0.0, "last_compacted_at": null, "files_saved": 3}

CALL expire_snapshots('db.t', older_than => TIMESTAMP '2100-01-01 00:00:00', dry_run => true, keep_files => true);
--> {"kind": "snapshot"}
--> {"kind": "snapshot"}
--> {"kind": "snapshot"}

CALL expire_snapshots('db.t', older_than => current_timestamp() + INTERVAL 1 DAY, retain_last => 2);
--> {"deleted_data_files_count": 0, "deleted_position_delete_files_count": 0, "deleted_equality_delete_files_count": 0, "deleted_manifest_files_count": 0, "deleted_manifest_lists_count": 2, "deleted_statistics_files_count": 0, "expired_snapshots_count": 2, "failed_deletes_count": 0}

CALL remove_orphans('db.t');

CALL rewrite_manifests('db.t');
--> {"rewritten_manifests_count": 4, "added_manifests_count": 1}

CALL rewrite_position_deletes('db.t');
--> {"rewritten_delete_files_count": 0, "added_delete_files_count": 0}

CALL maintain_table('db.t', steps => array('compact', 'manifests'), target => '1MB');
--> {"step": "compact", "outcome": "nothing to do"}
--> {"step": "manifests", "outcome": "done"}
