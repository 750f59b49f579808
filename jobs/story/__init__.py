"""What became of a run, told from what SQL and the archive hold: where the paid seconds went, where it left the way of
the nearest success, what energy its proofs took, and what one needs to run it again elsewhere.
"""
