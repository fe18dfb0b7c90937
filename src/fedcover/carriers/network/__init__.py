"""A job between processes: a coordinator leads its conversations, sites answer from their folders.

``coordinator`` sends orders over a transport, checks replies and goes on with who is there;
``member`` is a site. :mod:`fedcover.carriers.network.flower` carries the messages between machines.
"""
