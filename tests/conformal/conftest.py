"""Property tests here are judged by their result alone, not by the clock of a busy machine."""

from hypothesis import settings

settings.register_profile("fedcover-conformal", deadline=None, print_blob=True)
settings.load_profile("fedcover-conformal")
