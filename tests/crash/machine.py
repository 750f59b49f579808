"""What a rented machine does: the agent's calls to the machine app, and its end by its own hand.

It runs beside the controller's processes, in none of them: its calls are never cut, its clock is the market's.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import httpx

from gpu.agent.core import REGISTER_FOR_S
from jobs.domain.agents import AgentRefused
from logs.emergency import pack_emergency
from logs.wire import emergency_key
from tests.fakes.vast.instances import Instance as Rented
from tests.jobs.agent import Agent

if TYPE_CHECKING:
    from jobs.context import Context
    from tests.crash.world import World


class Machine:
    """One container. Stopped and started again it is the same one: its warden remembers when it first ran."""

    def __init__(self, world: World, rented: Rented):
        self.rented = rented
        self._world = world
        self._begun_ms = world.now_ms()
        self._agent: Agent | None = None
        self._lease_ends_ms = 0
        self._stage = "register"
        self.over = False

    def use(self, machine_app: Context) -> None:
        """Call this machine app from now on."""
        if self._agent is not None:
            self._agent.context = machine_app

    def act(self) -> None:
        """Its next call; the machine app may be away."""
        if not self.rented.live or self.rented.actual != "running":
            return
        if self.over:
            self._end()  # the warden asks until the marketplace says that it is gone
            return
        if self._agent is not None and self._world.now_ms() >= self._lease_ends_ms:
            self._abandoned()
        alone_s = (self._world.now_ms() - self._begun_ms) / 1000
        longest_s = float(self.rented.env["PROVEFLEET_HARD_DEADLINE_S"])
        if alone_s >= (longest_s if self._agent is not None else min(longest_s, REGISTER_FOR_S)):
            self._end()
        if self.over:
            return
        if self._world.controller_is_up:
            self._step()

    def _step(self) -> None:
        try:
            if self._agent is None:
                self._register()
            elif not self.over:
                self._work(self._agent)
        except AgentRefused as error:
            if error.status == 410:
                self._end()

    def _register(self) -> None:
        world = self._world
        row = world.row_of(self.rented.label or "")
        if row is None or row.run_id is None:
            return
        agent = Agent(world.machine_app, world.now_ms, row.run_id, row.id)  # type: ignore[arg-type]
        agent.register(self.rented.env["PROVEFLEET_BOOTSTRAP_TOKEN"])
        self._agent = agent
        self._renewed(world.settings.lease_s)

    def _work(self, agent: Agent) -> None:
        done = self._stage == "failed"
        told = agent.lease("benchmark", ended=done, exit_code=1 if done else None, total=1)
        self._renewed(told.lease_s)
        orders = {command.name for command in told.commands}
        if "exit" in orders:
            self._end()
        elif "seal" in orders:
            if self._stage != "sealed":
                agent.ship("setup", "the last words\n")
            self._stage = "sealed" if agent.seal().accepted else self._stage
        elif self._stage == "register":
            agent.pull()
            agent.ship("bench", "proving\n")
            self._stage = "proving"
        elif self._stage == "proving":
            agent.result(0, agent_round(agent, self._world), ok=False, error="a prover that fails, for this test")
            self._stage = "failed"

    def _renewed(self, lease_s: float) -> None:
        self._lease_ends_ms = self._world.now_ms() + round(lease_s * 1000)

    def _abandoned(self) -> None:
        """The lease is over: the evidence goes where the last renewal said, then the machine ends itself."""
        assert self._agent is not None
        agent, file = self._agent, io.BytesIO()
        told = {**agent.manifest("the lease could not be renewed").to_json()}
        told |= {"run": agent.run_id, "instance": agent.instance_id}
        pack_emergency(file, told, agent.shipped[-1:])
        key = emergency_key(agent.run_id, agent.instance_id)
        self._world.s3.objects.setdefault(key, (file.getvalue(), {}))
        self._end()

    def _end(self) -> None:
        """DELETE with the instance's own key, as the warden does it."""
        self.over = True
        with httpx.Client(transport=self._world.market_transport, base_url=self._world.settings.vast_url) as client:
            client.delete(
                f"/api/v0/instances/{self.rented.env['CONTAINER_ID']}/",
                headers={"Authorization": f"Bearer {self.rented.env['CONTAINER_API_KEY']}"},
            )


def agent_round(agent: Agent, world: World) -> int:
    """The round that its tasks are of."""
    row = world.row(agent.instance_id)
    return row.round if row else 1
