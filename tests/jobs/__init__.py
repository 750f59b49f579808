"""Tests of the domain and the jobs, on a real SQLite, PostgreSQL, Valkey and SeaweedFS."""
