"""The diagnosis: pure, without database or network."""
