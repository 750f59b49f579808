"""The check of the prover on a real GPU: `python -m gpu.cuda.check`, see `__main__`. May import all of `gpu`."""
