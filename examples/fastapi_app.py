"""Kron inside a FastAPI program: `uvicorn examples.fastapi_app:app`, then open http://127.0.0.1:8000/jobs.

The jobs run in the event loop of the server; a function that blocks runs in a thread.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from fastapi import FastAPI, HTTPException

import kron

runner = kron.Runner(os.environ.get("SHOP_STATE", "sqlite:///shop.db"))
prices = {"coffee": 3.20}


@runner.job("*/5 * * * *", window="2m", deadline="1m")
async def refresh_prices(run: kron.Run) -> None:
    prices["coffee"] = 3.20 + run.nominal_time.minute / 100


@runner.job("30 20 * * mon-sat", timezone="Europe/Berlin", deadline="10m", retry_delay="5m")
def send_report() -> None:
    time.sleep(0.01)  # stands for a mail server: it blocks this thread, not the server


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with runner:
        yield


app = FastAPI(title="A shop", lifespan=lifespan)


@app.get("/prices")
async def list_prices() -> dict[str, float]:
    return prices


@app.get("/jobs")
async def list_jobs() -> dict[str, datetime | None]:
    return {job.identity: job.next_start_at for job in await runner.jobs()}


@app.post("/jobs/{identity}/run", status_code=202)
async def run_now(identity: str) -> dict[str, str]:
    try:
        return {"key": await runner.run_now(identity)}
    except kron.InputError as error:
        raise HTTPException(404, str(error)) from error


@app.get("/jobs/{identity}/runs")
async def list_runs(identity: str) -> list[kron.Run]:
    return await runner.runs(identity, limit=20)


@app.get("/jobs/{identity}/why")
async def explain(identity: str, at: datetime | None = None) -> list[str]:
    answer = await (runner.why(identity) if at is None else runner.why(identity, at))
    return answer.sentences
