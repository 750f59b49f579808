"""The marketplaces, all speaking `base.Provider`. `local` rents out the machine we run on, `vast` those of strangers.

May import `jobs.settings`, `jobs.services.{state,errors}`, `jobs.market.pacing`, `gpu.agent.facts`, `gpu.agent.procfs`;
knows no SQL. A provider keeps no state of ours: what it lists is what is there.
"""
