"""The market: accounts, machines, offers, instances, and everything that a test may arrange or ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fakes.vast import machines, scenarios, stages
from tests.fakes.vast.accounts import SCOPES, Account, Key
from tests.fakes.vast.billing import DOWN, GB, KINDS, UP, Meter, Purse, Traffic
from tests.fakes.vast.clock import Clock
from tests.fakes.vast.create import MAX_ENV_VALUE, Order
from tests.fakes.vast.faults import Fault, Faults
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.lifecycle import Lifecycle
from tests.fakes.vast.limits import Limits, Violation
from tests.fakes.vast.logs import LogHost
from tests.fakes.vast.machines import Machine, Offer
from tests.fakes.vast.paths import ROUTES
from tests.fakes.vast.ssh import SshDoors

START_MS = 1_780_000_000_000


@dataclass(slots=True)
class Seen:
    """One call as the market saw it. The key is not in it: `identity` is the account's name, `instance:<id>`, or an
    address. `body` is what was sent as JSON, or bytes that were none; `status` is 0 when the connection broke.
    """

    route: str
    identity: str
    at_ms: int
    path: str
    query: dict[str, str]
    body: Any = None
    status: int = 0


class Market:
    """A whole marketplace. `now_ms` is where its clock starts, or the clock that it follows.

    Arrange: `add_account`, `add_machine`, `seed_offers`, `add_instance`, `fault`, `scenario`, and what happens to
    instances through `life`. Ask: `instances`, `requests`, `violations`, `bill`, `live`, `double_rentals`,
    `foreign_touched`, `key_seen_in`. `on_rent` and `on_destroy` are called when a container starts and when its
    instance is gone. `lock` guards all of it when several threads serve.
    """

    def __init__(self, seed: int = 0, now_ms: int | Callable[[], int] = START_MS):
        self.lock = threading.RLock()
        self.rng = Random(seed)
        self.clock = Clock(now_ms)
        self.life = Lifecycle(self)
        self.limits = Limits()
        self.faults = Faults(frozenset(route.name for route in ROUTES))
        self.logs = LogHost(self.clock)
        self.accounts: list[Account] = []
        self.keys: dict[str, Key] = {}
        self.machines: dict[int, Machine] = {}
        self.offers: dict[int, Offer] = {}
        self.withdrawn: dict[int, Offer] = {}
        self.instances: dict[int, Instance] = {}
        self.requests: list[Seen] = []
        self.on_rent: Callable[[Instance], None] | None = None
        self.on_destroy: Callable[[Instance], None] | None = None
        self.ssh: SshDoors | None = None
        self.pull_s = 30.0
        """How long an image takes to come down."""
        self.charges_lag_s = 3600.0
        """How far the written bill is behind."""
        self.credit_refresh_s = 3.0
        """How old the credit that is shown may be."""
        self.skew_s = 0.0
        """How far Vast's clock is ahead of everybody else's."""
        self.read_lag_s = 0.0
        """How long after its creation an instance is in no answer."""
        self.env_value_limit: int | None = MAX_ENV_VALUE
        """Characters of one value of a container's environment; None for no limit."""
        self.unknown_field = "ignore"
        """What a search does with a field that it does not know: `ignore` or `400`."""
        self.gone_form = "null"
        """What showing a destroyed instance answers: `null` or `404`."""
        self.double_rent = False
        """Whether two creates of one offer are both accepted, for as long as it is in a search's answer."""
        self.extra_fields: dict[str, Any] = {}
        """Keys that every answer and row has besides."""
        self.sloppy_search = False
        """Whether the search forgets its filters."""
        self.search_changes: list[Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = []
        self.gone_turn = 0
        self._ids = {"account": 1000, "host": 20_000, "machine": 30_000, "offer": 20_000_000, "instance": 30_000_000}

    # Time.

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    def advance(self, seconds: float) -> None:
        """Let time pass, with all that happens in it."""
        with self.lock:
            self.clock.advance(seconds)

    # What a test arranges.

    def next_id(self, kind: str) -> int:
        self._ids[kind] += self.rng.randrange(1, 40) if kind in ("offer", "instance") else 1
        return self._ids[kind]

    def add_account(
        self, key: str, credit: float = 25.0, scopes: frozenset[str] = SCOPES, name: str = "", **fields: Any
    ) -> Account:
        """A customer with one key and `credit` dollars."""
        number = self.next_id("account")
        account = Account(number, name or f"account-{number}", Purse(self.clock, credit), **fields)
        account.purse.on_empty = lambda: self.life.out_of_credit(account)
        account.payments.append({"at_ms": self.now_ms, "dollars": credit, "service": "stripe_payments"})
        self.accounts.append(account)
        self.add_key(account, key, scopes)
        return account

    def add_key(self, account: Account, text: str, scopes: frozenset[str] = SCOPES, state: str = "good") -> Key:
        name = account.name if not account.keys else f"{account.name}/{len(account.keys) + 1}"
        key = Key(text, name, account, frozenset(scopes), None, state)
        account.keys.append(key)
        self.keys[text] = key
        return key

    def add_machine(self, gpu_name: str = "RTX 4090", num_gpus: int = 1, **fields: Any) -> Machine:
        """A machine on offer. `fields` are those of `Machine`."""
        gpu = machines.gpu_of(gpu_name)
        fields.setdefault("dollars_per_gpu_hour", gpu.dollars_per_hour)
        fields.setdefault("host_id", self.next_id("host"))
        fields.setdefault("id", self.next_id("machine"))
        fields.setdefault("listed_ms", self.now_ms)
        machine = Machine(gpu=gpu, num_gpus=num_gpus, **fields)
        return self.list_machine(machine)

    def seed_offers(self, count: int) -> list[Offer]:
        """Machines as one meets them, until there are `count` more offers; a default search hides some of them."""
        wanted = len(self.offers) + count
        host = self.next_id("host")
        while len(self.offers) < wanted:
            if self.rng.random() < 0.6:
                host = self.next_id("host")
            machine = machines.draw(self.rng, self.next_id("machine"), host, self.now_ms)
            while len(self.offers) + len(machines.slices(machine)) > wanted:
                machine.num_gpus //= 2
            self.list_machine(machine)
        return list(self.offers.values())[-count:]

    def list_machine(self, machine: Machine) -> Machine:
        """Put a machine up for rent."""
        self.machines[machine.id] = machine
        self.refresh_offers(machine)
        return machine

    def refresh_offers(self, machine: Machine) -> None:
        """What is free is on offer. A slice that is still free keeps its id, another one gets a new one."""
        wanted = set(machines.slices(machine)) if machine.listed else set()
        for gpus in machine.offers.keys() - wanted:
            self.withdraw(machine.offers[gpus])
        for gpus in sorted(wanted - machine.offers.keys(), key=len, reverse=True):
            number = self.next_id("offer")
            self.offers[number] = machine.offers[gpus] = Offer(number, machine, gpus)

    def withdraw(self, offer: Offer) -> None:
        """The offer is gone; its machine's other slices stay."""
        del self.offers[offer.id], offer.machine.offers[offer.gpus]
        self.withdrawn[offer.id] = offer

    def renew(self, offer: Offer) -> None:
        """The same slice under another id."""
        self.withdraw(offer)
        self.refresh_offers(offer.machine)

    def add_instance(
        self, account: Account, label: str | None, machine: Machine | None = None, foreign: bool = True, **fields: Any
    ) -> Instance:
        """Something that is rented already and runs. `foreign`: nobody but its owner may touch it."""
        machine = machine or self.add_machine()
        offer = next(iter(machine.offers.values()))
        order = Order("vastai/pytorch:latest", label, 20.0, None, "ssh_proxy", "running", True)
        i = self.rent(account, offer, order, start=False)
        i.foreign = foreign
        self.life.run(i)
        for name, value in fields.items():
            setattr(i, name, value)
        return i

    def fault(self, route: str, kind: str, times: int = 1, **options: Any) -> Fault:
        """See `faults` for the kinds."""
        return self.faults.arm(route, kind, times, **options)

    def scenario(self, name: str, variant: str = "", **options: Any) -> Any:
        """Arm a nasty case of `scenarios`: `N8`, or `N25` with a variant, also as `N25:stale`."""
        with self.lock:
            return scenarios.arm(self, name, variant, **options)

    # Renting.

    def rent(self, account: Account, offer: Offer, order: Order, start: bool = True) -> Instance:
        """An instance of this offer; its GPUs are taken, its life begins."""
        number = self.next_id("instance")
        machine = offer.machine
        price = offer.dph_base if order.price is None else order.price
        secret = f"{self.rng.getrandbits(256):064x}"
        i = Instance(
            id=number,
            account=account,
            key=secret,
            machine=machine,
            offer=offer,
            created_ms=self.now_ms,
            end_ms=self.now_ms + round(machine.duration_s * 1000),
            label=order.label,
            image=order.image,
            disk_gb=order.disk_gb,
            dph_base=price,
            is_bid=order.price is not None,
            meter=Meter(self.now_ms),
            asked_env=order.env,
            onstart=order.onstart,
            args=order.args,
            runtype=order.runtype,
            template=order.template,
            volume=order.volume,
            first_port=20_000 + number * 37 % 40_000,
        )
        i.env = self._container_env(i)
        self.instances[number] = account.live[number] = i
        self.keys[secret] = Key(secret, f"instance:{number}", account, frozenset(), number)
        i.shown_from_ms = i.listed_from_ms = self.now_ms + round(self.read_lag_s * 1000)
        for index in offer.gpus:
            machine.taken.setdefault(index, number)
        self.refresh_offers(machine)
        self.life.charge(i)
        self.clock.at(i.end_ms, lambda: self.life.expire(i))
        if start:
            self.life.begin(i)
        return i

    def rent_stopped(self, account: Account, offer: Offer, order: Order) -> Instance:
        """An instance that was not meant to start, or could not: it costs its disk."""
        self.life.lives.insert(0, stages.left_stopped if order.target == "stopped" else stages.unavailable)
        return self.rent(account, offer, order)

    def _container_env(self, i: Instance) -> dict[str, str]:
        """What Vast puts into a container, and what was asked for; flags of docker are no variables."""
        env = {name: value for name, value in i.asked_env.items() if not name.startswith("-")}
        keys = [key["public_key"] for key in i.account.ssh_keys]
        env |= {
            f"VAST_{port.partition('/')[2].upper()}_PORT_{port.partition('/')[0]}": str(i.first_port + n)
            for n, port in enumerate(i.inside_ports())
        }
        return env | {
            "CONTAINER_ID": str(i.id),
            "CONTAINER_API_KEY": i.key,
            "VAST_CONTAINERLABEL": f"C.{i.id}",
            "PUBLIC_IPADDR": i.machine.public_ip,
            "GPU_COUNT": str(len(i.offer.gpus)),
            "JUPYTER_TOKEN": i.jupyter_token,
            **({"SSH_PUBLIC_KEY": "\n".join(keys)} if keys else {}),
        }

    def transfer(self, i: Instance, down_bytes: int = 0, up_bytes: int = 0) -> None:
        """Traffic of an instance, charged at once, in every state."""
        prices = ((DOWN, down_bytes, i.machine.dollars_per_gb_down), (UP, up_bytes, i.machine.dollars_per_gb_up))
        for kind, size, dollars_per_gb in prices:
            dollars = size / GB * dollars_per_gb
            if dollars:
                i.meter.traffic.append(Traffic(self.now_ms, kind, dollars))
                i.account.purse.pay(-dollars)

    # What a test asks.

    @property
    def violations(self) -> list[Violation]:
        """All that a well-behaved client does not do."""
        return self.limits.violations

    def bill_by_kind(self, what: int | str | None = None) -> dict[str, float]:
        """Dollars by gpu, disk, bwd and bwu: of one instance (id), of all with a label, of all."""
        self.clock.catch_up()
        found = [i for i in self.instances.values() if what is None or what in (i.id, str(i.id), i.label)]
        return {
            kind: sum(i.meter.dollars(kind, 0, self.now_ms + (kind in (DOWN, UP))) for i in found) for kind in KINDS
        }

    def bill(self, what: int | str | None = None) -> float:
        """Dollars, exact, up to now. See `bill_by_kind`."""
        return sum(self.bill_by_kind(what).values())

    def live(self, label_prefix: str = "") -> list[Instance]:
        """Instances that exist, and cost, under labels with this prefix."""
        self.clock.catch_up()
        return [i for i in self.instances.values() if i.live and (i.label or "").startswith(label_prefix)]

    def double_rentals(self) -> dict[str, list[int]]:
        """Labels under which more than one instance was ever rented."""
        found: dict[str, list[int]] = {}
        for i in self.instances.values():
            if i.label and not i.foreign:
                found.setdefault(i.label, []).append(i.id)
        return {label: ids for label, ids in found.items() if len(ids) > 1}

    def foreign_touched(self) -> list[Instance]:
        """Strangers' instances that somebody changed or destroyed through the API."""
        return [i for i in self.instances.values() if i.foreign and i.touched]

    def key_seen_in(self, text: str | bytes) -> list[str]:
        """Names of the account keys that are in the text."""
        raw = text if isinstance(text, bytes) else text.encode(errors="replace")
        return [key.name for key in self.keys.values() if key.instance_id is None and key.text.encode() in raw]
