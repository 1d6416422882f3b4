"""Tasks that take and return files, for real workers."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from daybreak import Context, Daybreak, File, Retry

app = Daybreak("memory://")


@dataclass
class Case:
    model: File
    vin: float


@app.task
def read(model: File) -> dict[str, Any]:
    with open(model, encoding="utf-8") as file:  # noqa: PTH123 - a File is a path
        text = file.read()
    return {
        "text": text,
        "name": model.name,
        "file": model.path.name,
        "path": os.fspath(model),
        "digest": model.digest,
        "is_read_only": not stat.S_IMODE(model.path.stat().st_mode) & 0o222,
    }


@app.task
async def read_async(model: File) -> str:
    return model.path.read_text(encoding="utf-8")


@app.task
def read_nested(case: Case, many: dict[str, list[File]], untyped) -> list[str]:
    files = [case.model, *many["files"], untyped["here"]]
    return [file.path.read_text(encoding="utf-8") for file in files]


@app.task
def write(text: str, name: str) -> dict[str, Any]:
    Path(name).write_text(text, encoding="utf-8")
    return {"waves": File(name), "n": len(text)}


@app.task
async def write_async(text: str, name: str) -> File:
    _write(text, name)
    return File(name)


def _write(text: str, name: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


@app.task
def pass_on(model: File) -> File:
    return model


@app.task
def submit_again(model: File) -> str:
    return read.submit(model).id


@app.task(retry=Retry(attempts=1))
def vanish(ctx: Context) -> File:
    return File(ctx.scratch / "gone.csv")


@app.task(retry=Retry(attempts=1))
def folder(ctx: Context) -> File:
    return File(ctx.scratch)


@app.task
def large(size: int) -> str:
    return "x" * size


@app.task
async def large_async(size: int) -> list[str]:
    return ["y" * size]


@app.task
def read_at(model: File, vin: float) -> dict[str, Any]:
    return {"text": model.path.read_text(encoding="utf-8"), "at": vin, "wave": "w" * 100_000}


@app.task
def double(a: np.ndarray) -> np.ndarray:
    return a * 2


@app.task
async def describe(frame: pd.DataFrame, other: pl.DataFrame) -> dict[str, Any]:
    return {"rows": len(frame), "polars": other * 2}
