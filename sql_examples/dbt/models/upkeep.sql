-- Looks after a table that others write: this model only leaves a note of the run.
{{ config(
    materialized='table',
    file_format='parquet',
    post_hook="CALL compact_table('{{ var('events_table') }}', target => '512MB')"
) }}
SELECT '{{ var('events_table') }}' AS table_name, current_timestamp() AS maintained_at
