"""A marketplace that speaks Vast.ai's API: market, machines, lifecycle, bill, limits, logs, and faults on order.

State and a virtual clock are in `market.Market`. `app.create_app(market)` is the WSGI app around it, in process through
`httpx.WSGITransport`; `app.serve` puts it on a socket; `python -m tests.fakes.vast` runs it by itself. A call goes
through `wsgi`, `faults`, `limits` and `auth` to one of the `api_*` modules. What instances go through is in `stages`
and, where it goes wrong, in `nasty`; `scenarios` has the nasty cases by name, `control` an API for tests elsewhere.

Nothing here but `boot` and `demo` knows the product. What Vast does is taken from its documents, its client and the
reports of its users.
"""
