"""A trained and calibrated model that outlives its run, and can be asked at any level."""

from fedcover.predictor.files import load_predictor, save_predictor
from fedcover.predictor.predictor import Predictor

__all__ = ["Predictor", "load_predictor", "save_predictor"]
