-- What a dbt post-hook sends after a model was built; in the model:
--   {{ config(post_hook="CALL compact_table('{{ this }}', target => '128MB')") }}
-- dbt puts a comment in front, which is fine. A hook must be a CALL: dbt never fetches the rows of a SELECT.
/* {"app": "dbt", "node_id": "model.shop.events"} */
CALL compact_table('demo.events', target => '128MB', min_input_files => 5);
