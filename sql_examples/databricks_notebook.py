# Databricks notebook source
# ruff: noqa: F821
# MAGIC %md
# MAGIC # Looking after an Iceberg table
# MAGIC What is wrong with the table, what would be done about it, and doing it. Runs on classic and on Connect compute.

# COMMAND ----------

# MAGIC %pip install iceberg-compact-sql

# COMMAND ----------

import iceberg_compact_sql

# `spark` and `display` are the notebook's own.
iceberg_compact_sql.register(spark)

table = "local.db.events"

# COMMAND ----------

# MAGIC %md Worst partitions first, with what compaction would save.

# COMMAND ----------

display(spark.sql("CALL score_partitions(:table)", args={"table": table}))

# COMMAND ----------

# MAGIC %md What a compaction would do, and why; nothing changes.

# COMMAND ----------

display(spark.sql("CALL compact_table(:table, target => '512MB', dry_run => true)", args={"table": table}))

# COMMAND ----------

# MAGIC %md Now for real. The call runs once, here; showing its result again runs nothing.

# COMMAND ----------

result = spark.sql("CALL compact_table(:table, target => '512MB')", args={"table": table})
display(result)

# COMMAND ----------

row = result.first()
print(f"{row.rewritten_data_files_count} files became {row.added_data_files_count} in {row.elapsed_ms} ms")
