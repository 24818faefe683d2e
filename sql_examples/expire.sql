-- Drop snapshots older than a week but keep the last ten of each branch, and delete the files that only they needed.
-- Tags, branches and their own retention settings are respected.
CALL expire_snapshots('demo.events', older_than => '7d', retain_last => 10);

-- With a way back: files are moved aside for three days first; restore_quarantine('demo.events') brings them back.
CALL expire_snapshots('demo.events', older_than => '7d', retain_last => 10, quarantine => '3d');
