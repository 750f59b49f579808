"""One module a marketplace, all speaking `base.Provider`. `local` rents out the machine we run on.

May import `jobs.settings`, `jobs.services.state` and `gpu.agent.facts`. A provider keeps no state of ours:
what it lists is what is there.
"""
