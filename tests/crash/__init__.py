"""Cuts at every external call of deploy, collect, destroy and reconcile: the shipped jobs on a real database, against
the fake marketplace in process. `world` is one controller with its machines, `cuts` the transport that fails on
order, `machine` what a rented machine does, `schedules` the Hypothesis machine that draws what happens.
"""
