"""The service: jobs over HTTP, schedules and a page; the extra `iceberg-compact-sql[service]`."""
