"""Tests of jobs/services: `up`, `doctor` and `demo` on real servers."""
