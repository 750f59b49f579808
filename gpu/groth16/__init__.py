"""Groth16 and its files: readers of `.zkey`, `.wtns`, `.r1cs`, the prover, the development setup, the
verifiers.

Importing this package imports nothing heavy. `binfile`, `zkey`, `wtns`, `r1cs`, `formats` and `verify` need
the standard library only (`verify` adds py_arkworks_bls12381 and py_ecc when called); `key`, `prover` and
`setup` need numpy and numba.
"""
