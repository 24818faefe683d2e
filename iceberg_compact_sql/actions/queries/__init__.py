"""Advice from queries that people ran: read their logs, sample rows, compare layouts."""
