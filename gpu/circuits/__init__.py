"""Built-in benchmark circuits, in plain Python: the controller makes witnesses here and knows the public
values.

May import `gpu.curve.params`, `gpu.errors`, `gpu.files` and the file writers of `gpu.groth16`; never numpy or
numba.
"""
