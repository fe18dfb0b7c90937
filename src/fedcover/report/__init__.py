"""Tables, figures and pages for people: what is made of a run's files."""
