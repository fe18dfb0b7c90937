"""A federation of separate processes: what the coordinator asks, and what a site answers.

Nothing here knows how messages travel; :mod:`fedcover.parties.loopback` carries them within one
process, :mod:`fedcover.flower` over a network.
"""
