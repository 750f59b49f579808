"""Receipts: what was proved, from what, on which machine, and when, signed with the controller's own key.

`receipt` builds, signs and checks them; `cli` is `provefleet receipt`. Who checks one needs only the file and the
controller's public key.
"""
