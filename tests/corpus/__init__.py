"""Labelled failures: folders as `provefleet diagnose` reads them, each with a `label.toml`.

`dev` was used to write the signatures; `held_out` was not, and its figures are the ones that count. Symptoms are those
of public reports (named in `source`), in our own words; the error texts are as the programs print them.
"""
