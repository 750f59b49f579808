"""Tests mirror the rooms; every folder here is a package, so that equal file names do not collide."""
