"""How requests reach parties: all as one program, one after another, or over a network."""
