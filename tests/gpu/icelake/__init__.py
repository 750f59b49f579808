"""The eight-lane operations with their real instructions, on a CPU that has them: Bochs' emulated Ice Lake.

`cases` compiles every operation for Ice Lake, and finds what each must give by running the same code with the special
instructions written out (PROVEFLEET_IFMA_EMULATED=1). `machine` is a program without an operating system that runs
the cases and tells on its serial port which ones differ. `boot` puts both on a CD and boots it.
"""
