-- Files that no snapshot names: leftovers of crashed writers. First see them, and how much they weigh.
CALL remove_orphans('demo.events', older_than => '7d', dry_run => true);

SELECT count(*) AS files, sum(bytes) AS bytes FROM remove_orphans('demo.events', older_than => '7d');

-- Then delete exactly these. Anything younger than a day is refused, and so is a run that would take more than half of
-- all files, unless force => true.
CALL remove_orphans('demo.events', older_than => '7d');
