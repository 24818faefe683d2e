-- Every night: everything a table needs, in the safe order, and a row for each step with what came of it.
-- The table's own properties (iceberg-compact.*) fill in what the call leaves out.
CALL maintain_table(
  'demo.events',
  target => '128MB',
  older_than => current_timestamp() - INTERVAL 7 DAYS,
  retain_last => 10
);
