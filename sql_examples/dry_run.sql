-- Look before anything is done. A dry run and a table function never change a table.
-- Which partitions are in a bad state, and what would help?
CALL score_partitions('demo.events', target => '128MB');

-- What would a compaction do, group by group, and why?
CALL compact_table('demo.events', target => '128MB', dry_run => true);

-- The same rows as a table function, to filter and add up with the rest of SQL.
SELECT count(*) AS groups, sum(data_files) AS files, sum(estimated_cost) AS dollars
FROM compact_table('demo.events', target => '128MB')
WHERE action = 'rewrite';

-- How much would expiring free, by kind of file?
SELECT kind, count(*) AS files, sum(bytes) AS bytes
FROM expire_snapshots('demo.events', older_than => '7d')
GROUP BY kind;
