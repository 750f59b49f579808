"""Labelled failures: folders as `provefleet diagnose` reads them, each with a `label.toml`.

`dev` was used to write the signatures. `held_out` is by a second author who has not read the signatures, and whoever
writes signatures reads only its figures: these are the ones that count. A case that was read after it had been missed
moves to `dev`. Symptoms are those of public reports (named in `source`), in our own words; the error texts are as the
programs print them.
"""
