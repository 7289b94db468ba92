"""History -> `RateForecast` per tenant, vectorised over all tenants.

The room decides how much each tenant will ask for and how wide the doubt is. It refuses to know what a replica
carries, what a tier is, where metrics come from and what time it is: rates and the time are arguments, memory goes
in and comes out.
"""

from autoscaler.forecasting.bursts import Bursts, bursts
from autoscaler.forecasting.forecasts import Explanation, ForecastMethod, RateForecast, explain_series, forecast
from autoscaler.forecasting.memory import ForecastMemory, empty_memory, realign
from autoscaler.forecasting.model import GlobalModel, NotEnoughHistoryError, train
from autoscaler.forecasting.observing import observe
from autoscaler.forecasting.outlook import Outlook, outlook
from autoscaler.forecasting.settings import ForecastSettings
from autoscaler.forecasting.totals import Totals, totals

__all__ = [
    "Bursts",
    "Explanation",
    "ForecastMemory",
    "ForecastMethod",
    "ForecastSettings",
    "GlobalModel",
    "NotEnoughHistoryError",
    "Outlook",
    "RateForecast",
    "Totals",
    "bursts",
    "empty_memory",
    "explain_series",
    "forecast",
    "observe",
    "outlook",
    "realign",
    "totals",
    "train",
]
