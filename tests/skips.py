"""With PROVEFLEET_TEST_ALL=1 (as in CI, where everything is installed) a skipped test is a failed one."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("PROVEFLEET_TEST_ALL") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, while PROVEFLEET_TEST_ALL is set: {report.longrepr}"
