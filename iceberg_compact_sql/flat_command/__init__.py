"""The flat command `iceberg-compact`: maintenance of the tables in a configuration file, for cron and CronJobs."""
