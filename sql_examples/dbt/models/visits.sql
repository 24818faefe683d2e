-- An Iceberg table that grows by a few files a run; the hook merges them once there are enough.
{{ config(
    materialized='incremental',
    incremental_strategy='append',
    file_format='iceberg',
    post_hook="CALL compact_table('{{ this }}', target => '512MB', min_input_files => 3)"
) }}
SELECT id, concat('page-', id % 7) AS page, current_timestamp() AS loaded_at
FROM range(0, 100, 1, 4)
