{# dbt run-operation compact --args '{table: db.events, target: 256MB}' #}
{% macro compact(table, target='512MB') %}
  {% set result = run_query("CALL compact_table('" ~ table ~ "', target => '" ~ target ~ "')") %}
  {% set row = result.rows[0] %}
  {{ log(table ~ ': ' ~ row[0] ~ ' files became ' ~ row[1], info=True) }}
{% endmacro %}
