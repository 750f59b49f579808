"""RQ jobs, the domain they act on, the markets they rent from, and the services that run them.

May import `logs`, `gpu.protocol`, `gpu.groth16` (verify and file readers, no numba) and
`gpu.circuits` (pure Python: the witnesses and public values the controller chooses). Never Flask.
"""
