-- Compact the days of one week only. The filter chooses files, never rows: every row of a chosen file is kept.
CALL compact_table(
  'demo.events',
  target => '128MB',
  where => "day >= DATE '2026-01-01' AND day < DATE '2026-01-08'",
  min_input_files => 2
);

-- The worst partitions first, and stop after 10 GB: for a window that is short.
CALL compact_table('demo.events', target => '128MB', job_order => 'score-desc', max_bytes => '10GB');
