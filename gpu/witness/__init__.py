"""Witnesses made by running circom's programs (`.wasm`) in a sandbox.

`inputs` reads the JSON, `sandbox` runs a program under limits and without any access to this machine, `circom2`
and `circom1` speak the two interfaces that such programs have, `calculate` joins them. Behaviour and messages
follow snarkjs' circom_runtime (the interface, not the code). May import `gpu.curve.params`, `gpu.errors`,
`gpu.files`, `gpu.memory` and the file writers of `gpu.groth16`; never numpy or numba.
"""
