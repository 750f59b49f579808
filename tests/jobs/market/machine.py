"""What a rented machine does: its agent registers, proves, ships and seals, as far as the market lets it run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.domain.agents import AgentRefused
from tests.fakes.vast.instances import Instance as Rented
from tests.jobs.agent import Agent

if TYPE_CHECKING:
    from tests.jobs.market.vast_scene import VastScene

# A host that Vast lost sight of may run on.
RUNS = ("running", "unknown", "hibernating")


class Machine:
    """One container. It does one thing each time it is looked at."""

    def __init__(self, scene: VastScene, rented: Rented):
        self._scene, self._rented = scene, rented
        self.agent: Agent | None = None
        self._pulled = self._sealed = self.ended = False
        self._next = 0

    def act(self) -> None:
        rented = self._rented
        if self.ended or not rented.live or rented.actual not in RUNS:
            return
        try:
            if self.agent is None:
                self._register()
            else:
                self._work(self.agent)
        except AgentRefused as error:
            if error.status != 410 and error.code != "not_yet":
                raise
            self.ended = error.status == 410

    def _register(self) -> None:
        scene = self._scene
        row = next((i for i in scene.instances() if i.label == self._rented.label), None)
        if row is None or row.run_id is None:
            return
        agent = Agent(scene.context, scene.clock, row.run_id, row.id)
        self.agent = agent.register(self._rented.env["PROVEFLEET_BOOTSTRAP_TOKEN"], **self._facts())

    def _facts(self) -> dict[str, Any]:
        """The hardware as the agent finds it, which may not be what was let."""
        gpu, truth = self._rented.machine.gpu, self._rented.truth
        if "nvidia_smi" in truth:
            return {"gpus": []}
        found = {"name": truth.get("gpu_name", gpu.name), "ram_bytes": truth.get("gpu_ram", gpu.ram_mb) << 20}
        return {"gpus": [found] * len(self._rented.offer.gpus)}

    def _work(self, agent: Agent) -> None:
        total = self._total(agent)
        ended = self._next >= total
        told = agent.lease("benchmark", round=self._round(agent), done=self._next, total=total, ended=ended)
        orders = {command.name for command in told.commands}
        if "exit" in orders:
            self.ended = True
        elif "seal" in orders:
            if not self._sealed:
                agent.ship("setup", "the last words\n")
                self._sealed = agent.seal().accepted
        elif not self._pulled:
            agent.pull(round_number=self._round(agent))
            agent.ship("bench", "proving\n")
            self._pulled = True
        else:
            for _ in range(self._scene.proofs_a_tick):
                self._prove(agent)

    def _prove(self, agent: Agent) -> None:
        if self._next >= self._total(agent):
            return
        if "nvidia_smi" in self._rented.truth:
            agent.result(self._next, self._round(agent), ok=False, error="no CUDA device is detected")
        else:
            agent.prove(self._next, self._round(agent))
        self._next += 1

    def _round(self, agent: Agent) -> int:
        return self._scene.instance(agent.instance_id).round

    def _total(self, agent: Agent) -> int:
        return self._scene.run(agent.run_id).proofs
