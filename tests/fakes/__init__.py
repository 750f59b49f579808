"""Servers that speak the real protocols. The product knows none of them."""
