"""The prover on NVIDIA GPUs: the driver's API, launch of ready-made kernels, one process per GPU.

The kernels themselves live beside their CPU twins (`gpu/field`, `gpu/curve`, `gpu/ntt`, `gpu/msm`) and are compiled
ahead of time by `python -m gpu.cuda.build`. Nothing that runs imports numba.cuda; only `driver` imports cuda.bindings,
and only in a GPU process.
"""
