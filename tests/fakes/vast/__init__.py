"""A marketplace that speaks Vast.ai's API: market, machines, lifecycle, bill, limits, logs, and faults on order.

State and a virtual clock are in `market.Market`; `app.create_app(market)` is the WSGI app around it, in process
through `httpx.WSGITransport` or on a socket through `app.serve`. `python -m tests.fakes.vast` runs it by itself.
Nothing here imports the product: what Vast does is taken from its documents, its client and reports of users.
"""
