"""Speed-up against eager, a panel for each way and dtype, with what the machine's arithmetic, or its memory, allows drawn in."""

from pathlib import Path
from typing import Any

COLORS = {
    "aot_eager": "#b8b8b8",
    "inductor": "#e0883a",
    "openvino": "#7a9a3a",
    "onnxruntime": "#8a6fb0",
    "mlirc": "#2f6db3",
}


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Writes a PNG. A row has setting, model, way, dtype, backend, steady, limit (seconds) or a failure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if not row.get("failure")]
    panels = sorted({(row["way"], row["dtype"]) for row in rows})
    if not panels:
        return
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(8, 2.6 * len(panels)), squeeze=False, layout="constrained")
    for (way, dtype), axis in zip(panels, axes[:, 0], strict=True):
        draw_panel(axis, [row for row in rows if (row["way"], row["dtype"]) == (way, dtype)])
        axis.set_title(f"{way}, {dtype}", loc="left", fontsize=10)
    axes[0, 0].legend(ncols=4, fontsize=8, frameon=False, loc="upper right", bbox_to_anchor=(1, 1.2))
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def draw_panel(axis: Any, rows: list[dict[str, Any]]) -> None:
    models = list(dict.fromkeys(row["model"] for row in rows))
    seconds = {(row["model"], row["backend"]): row["steady"]["median"] for row in rows}
    limits = {row["model"]: row["limit"] for row in rows if row["limit"]}
    backends = [backend for backend in COLORS if any((model, backend) in seconds for model in models)]
    width = 0.8 / max(len(backends), 1)
    for place, model in enumerate(models):
        eager = seconds.get((model, "eager"))
        if eager is None:
            continue
        for number, backend in enumerate(backends):
            if (model, backend) in seconds:
                speed_up = eager / seconds[model, backend]
                left = place - 0.4 + number * width
                label = backend if place == 0 else None
                axis.bar(left, speed_up, width * 0.92, align="edge", color=COLORS[backend], label=label)
                axis.text(left + width / 2, speed_up, f"{speed_up:.2f}", ha="center", va="bottom", fontsize=7)
        if model in limits:
            label = "the machine's limit" if place == 0 else None
            axis.hlines(eager / limits[model], place - 0.42, place + 0.42, color="black", linewidth=1, label=label)
    axis.axhline(1, color="#666666", linewidth=0.8, linestyle=":")
    axis.set_xticks(range(len(models)), models, fontsize=8)
    axis.set_ylabel("times eager's speed", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
