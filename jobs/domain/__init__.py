"""What is true: the models, the one table of allowed transitions, events, runs, and the database they live in.

SQL is the truth; Redis only wakes things up. May import `logs` and `gpu.protocol`; never a provider or RQ.
"""
