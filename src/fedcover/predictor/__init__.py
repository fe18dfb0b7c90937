"""A trained and calibrated model that outlives its run, and can be asked at any level."""

from fedcover.predictor.loading import load_predictor
from fedcover.predictor.predictor import Predictor
from fedcover.predictor.saving import save_predictor

__all__ = ["Predictor", "load_predictor", "save_predictor"]
