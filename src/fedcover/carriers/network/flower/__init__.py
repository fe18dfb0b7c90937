"""fedcover over a network, on Flower: thin adapters, no algorithm in them.

``server_app`` and ``client_app`` are what Flower runs; ``app/`` is the folder for ``flwr run``.
``node`` is a party's SuperNode that stays warm between messages. What is said is decided in
:mod:`fedcover.carriers.network`.
"""
